import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Kafka's own tools, one after the other in one JVM. Reads lines `CLASS STDIN ARGUMENT..`, all but the class hex; writes
 * `CODE STDOUT STDERR` for each.
 */
public class Tools {
    /** Not an Exception: most tools catch those. Those that catch this one exit again, with another code. */
    static class Exited extends Error {
        Exited() { super(null, null, false, false); }
    }

    static Integer code;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        List<Runnable> hooks = new ArrayList<>();
        Exit.setExitProcedure((status, message) -> {
            code = code == null ? status : code;
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(HexFormat.of().parseHex(words[1])));
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            String[] arguments = Arrays.stream(words).skip(2)
                .map(word -> new String(HexFormat.of().parseHex(word), StandardCharsets.UTF_8)).toArray(String[]::new);
            code = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (java.lang.reflect.InvocationTargetException error) {
                if (!(error.getCause() instanceof Exited)) {
                    error.getCause().printStackTrace();
                    code = code == null ? 1 : code;
                }
            }
            hooks.forEach(Runnable::run);
            hooks.clear();
            answers.println((code == null ? 0 : code) + " " + HexFormat.of().formatHex(out.toByteArray()) + " " + HexFormat.of().formatHex(err.toByteArray()));
        }
        System.exit(0);
    }
}
