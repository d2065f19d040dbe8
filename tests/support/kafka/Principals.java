import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines `dn DER` and `map RULES TEXT`, all hex; writes `ok TEXT`, hex, or `error CLASS` for each. */
public class Principals {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        try {
            String found = words[0].equals("dn")
                ? new X500Principal(HexFormat.of().parseHex(words[1])).getName()
                : new SslPrincipalMapper(text(words[1])).getName(text(words[2]));
            return "ok " + HexFormat.of().formatHex(found.getBytes(StandardCharsets.UTF_8));
        } catch (Exception | StackOverflowError e) {
            return "error " + e.getClass().getSimpleName();
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
