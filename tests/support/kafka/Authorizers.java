import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.lang.reflect.*;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

/**
 * Kafka's authorizers without a cluster. Reads a case a line, and answers each in a line:
 *   {"super": "User:a;User:b", "everyone": bool, "acls": [[type, name, pattern, principal, host, operation, permission]],
 *    "questions": [[principal type, principal, host, operation, type, name or null for any resource of the type]]}
 * Numbers stand for types, patterns, operations and permissions, as in the protocol.
 *   [[is allowed, line of the audit log]], or [class of an exception] in place of an answer
 * The argument is StandardAuthorizer or AclAuthorizer; that one's cache is filled as a notice from ZooKeeper does it.
 */
public class Authorizers {
    static final ByteArrayOutputStream said = new ByteArrayOutputStream();
    static final ObjectMapper json = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        boolean isStandard = arguments[0].equals("StandardAuthorizer");
        logInto(said, isStandard);
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = cases.readLine()) != null; ) {
            JsonNode given = json.readTree(line);
            Authorizer authorizer = isStandard ? standard(given) : ofZooKeeper(given);
            List<Object> found = new ArrayList<>();
            for (JsonNode question : given.get("questions")) found.add(ask(authorizer, question));
            answers.println(json.writeValueAsString(found));
            answers.flush();
        }
    }

    /** Kafka 4 has Log4j 2, Kafka 3.9 has Log4j 1, whose DEBUG has other lines as well. */
    static void logInto(OutputStream stream, boolean isLog4j2) throws Exception {
        System.setOut(new PrintStream(stream, true, StandardCharsets.UTF_8));
        Path settings = Files.createTempFile("log4j", ".properties");
        settings.toFile().deleteOnExit();
        Files.writeString(settings, isLog4j2 ? """
            rootLogger.level=off
            appender.a.type=Console
            appender.a.name=a
            appender.a.layout.type=PatternLayout
            appender.a.layout.pattern=%m
            appender.a.layout.charset=UTF-8
            logger.k.name=kafka.authorizer.logger
            logger.k.level=debug
            logger.k.additivity=false
            logger.k.appenderRef.a.ref=a
            """ : """
            log4j.rootLogger=OFF
            log4j.appender.A=org.apache.log4j.ConsoleAppender
            log4j.appender.A.encoding=UTF-8
            log4j.appender.A.layout=org.apache.log4j.PatternLayout
            log4j.appender.A.layout.ConversionPattern=%m
            log4j.logger.kafka.authorizer.logger=INFO, A
            log4j.additivity.kafka.authorizer.logger=false
            """);
        System.setProperty(isLog4j2 ? "log4j2.configurationFile" : "log4j.configuration", settings.toUri().toString());
    }

    static Authorizer standard(JsonNode given) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        Class<?> metrics = Class.forName("org.apache.kafka.common.metrics.internals.PluginMetricsImpl");
        call(authorizer, "withPluginMetrics", metrics.getConstructors()[0].newInstance(new Metrics(), Map.of()));
        authorizer.configure(Map.of("super.users", given.get("super").asText(), "node.id", "1",
            "allow.everyone.if.no.acl.found", given.get("everyone").asText()));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (JsonNode acl : given.get("acls")) acls.put(Uuid.randomUuid(), StandardAcl.fromAclBinding(binding(acl)));
        authorizer.loadSnapshot(acls);
        authorizer.completeInitialLoad();
        return authorizer;
    }

    static Authorizer ofZooKeeper(JsonNode given) throws Exception {
        Class<?> kind = Class.forName("kafka.security.authorizer.AclAuthorizer");
        Authorizer authorizer = (Authorizer) kind.getConstructor().newInstance();
        List<Object> users = new ArrayList<>();
        for (String user : given.get("super").asText().split(";"))
            if (!user.isEmpty()) users.add(new KafkaPrincipal(user.split(":", 2)[0], user.split(":", 2)[1]));
        call(authorizer, "superUsers_$eq", set(users));
        call(authorizer, "shouldAllowEveryoneIfNoAclIsFound_$eq", given.get("everyone").asBoolean());
        Map<ResourcePattern, List<Object>> acls = new LinkedHashMap<>();
        Constructor<?> entry = Class.forName("org.apache.kafka.security.authorizer.AclEntry").getConstructor(AccessControlEntry.class);
        for (JsonNode acl : given.get("acls")) {
            AclBinding binding = binding(acl);
            acls.computeIfAbsent(binding.pattern(), pattern -> new ArrayList<>()).add(entry.newInstance(binding.entry()));
        }
        Constructor<?> versioned = Class.forName("kafka.security.authorizer.AclAuthorizer$VersionedAcls")
            .getConstructors()[0];
        for (var each : acls.entrySet())
            call(authorizer, "updateCache", each.getKey(), versioned.newInstance(set(each.getValue()), 1));
        return authorizer;
    }

    static Object set(List<Object> of) throws Exception {
        Object buffer = scala.jdk.javaapi.CollectionConverters.asScala(of);
        return buffer.getClass().getMethod("toSet").invoke(buffer);
    }

    static void call(Object of, String name, Object... arguments) throws Exception {
        for (Method method : of.getClass().getDeclaredMethods())
            if (method.getName().endsWith(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                method.invoke(of, arguments);
                return;
            }
        throw new NoSuchMethodException(name);
    }

    static AclBinding binding(JsonNode acl) {
        return new AclBinding(
            new ResourcePattern(ResourceType.fromCode(code(acl, 0)), acl.get(1).asText(), PatternType.fromCode(code(acl, 2))),
            new AccessControlEntry(acl.get(3).asText(), acl.get(4).asText(), AclOperation.fromCode(code(acl, 5)),
                AclPermissionType.fromCode(code(acl, 6))));
    }

    static byte code(JsonNode of, int index) { return (byte) of.get(index).asInt(); }

    static List<Object> ask(Authorizer authorizer, JsonNode question) throws Exception {
        Client client = new Client(new KafkaPrincipal(question.get(0).asText(), question.get(1).asText()),
            InetAddress.getByName(question.get(2).asText()));
        AclOperation operation = AclOperation.fromCode(code(question, 3));
        ResourceType type = ResourceType.fromCode(code(question, 4));
        AuthorizationResult result;
        said.reset();
        try {
            if (question.get(5).isNull())
                result = authorizer.authorizeByResourceType(client, operation, type);
            else
                result = authorizer.authorize(client, List.of(new Action(operation,
                    new ResourcePattern(type, question.get(5).asText(), PatternType.LITERAL), 1, true, true))).get(0);
        } catch (RuntimeException error) {
            return List.of(error.getClass().getSimpleName());
        }
        return List.of(result == AuthorizationResult.ALLOWED, said.toString(StandardCharsets.UTF_8));
    }

    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 3; }
        public int requestVersion() { return 1; }
        public String clientId() { return "c"; }
        public int correlationId() { return 1; }
    }
}
