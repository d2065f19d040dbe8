import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.*;
import com.google.protobuf.Descriptors.*;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.ExtensionRegistry;
import com.google.protobuf.Message;
import com.google.protobuf.TypeRegistry;
import com.google.protobuf.util.JsonFormat;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.avro.Schema;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;

/**
 * Serializes and deserializes what stdin asks for, a JSON object in a line; each answer is one, too. Data are Avro's
 * datum, Protobuf's message or JSON, as base64: values are made of them by Java's own libraries.
 */
public class Serdes {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final Map<String, Object> SERDES = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer(MAPPER.readTree(line), answer);
            } catch (Throwable error) {
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                answer.put("error", text.toString().lines().limit(20).collect(Collectors.joining("\n")));
            }
            out.println(MAPPER.writeValueAsString(answer));
            out.flush();
        }
        System.exit(0);
    }

    static void answer(JsonNode asked, Map<String, Object> answer) throws Exception {
        String format = asked.path("format").asText();
        byte[] data = Base64.getDecoder().decode(asked.path("data").asText());
        RecordHeaders headers = new RecordHeaders();
        switch (asked.get("do").asText()) {
            case "serialize" -> {
                @SuppressWarnings("unchecked") var serializer = (Serializer<Object>) serde(asked);
                answer.put("data", serializer.serialize(asked.get("topic").asText(), headers, value(format, asked, data)));
                Map<String, byte[]> found = new LinkedHashMap<>();
                for (Header header : headers) found.put(header.key(), header.value());
                answer.put("headers", found);
            }
            case "deserialize" -> {
                asked.path("headers").fields().forEachRemaining(one ->
                    headers.add(one.getKey(), Base64.getDecoder().decode(one.getValue().asText())));
                var found = ((Deserializer<?>) serde(asked)).deserialize(asked.get("topic").asText(), headers, data);
                answer.put("data", bytes(format, asked, found));
            }
            case "json" -> answer.put("json", json(format, value(format, asked, data), asked));
            case "parse" -> answer.put("data", bytes(format, asked, parse(format, asked)));
        }
    }

    /** One serializer for each configuration: its registry's client is slow to start. */
    static Object serde(JsonNode asked) throws Exception {
        String name = asked.get("class") + " " + asked.get("config");
        if (!SERDES.containsKey(name)) {
            Object made = Class.forName(asked.get("class").asText()).getConstructor().newInstance();
            @SuppressWarnings("unchecked") Map<String, Object> config = MAPPER.convertValue(asked.get("config"), Map.class);
            if (made instanceof Serializer<?> serializer) serializer.configure(config, false);
            else ((Deserializer<?>) made).configure(config, false);
            SERDES.put(name, made);
        }
        return SERDES.get(name);
    }

    static Object value(String format, JsonNode asked, byte[] data) throws Exception {
        switch (format) {
            case "avro": return read(schema(asked), DecoderFactory.get().binaryDecoder(data, null));
            case "protobuf": return DynamicMessage.newBuilder(descriptor(asked)).mergeFrom(data, extensions(asked)).build();
            case "glue-json":
                Class<?> kind = Class.forName("com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema");
                Object builder = kind.getMethod("builder", String.class, String.class)
                    .invoke(null, asked.get("schema").asText(), new String(data, "UTF-8"));
                return builder.getClass().getMethod("build").invoke(builder);
            default: return MAPPER.readTree(data);
        }
    }

    static byte[] bytes(String format, JsonNode asked, Object value) throws Exception {
        switch (format) {
            case "avro":
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                Encoder encoder = EncoderFactory.get().binaryEncoder(out, null);
                new GenericDatumWriter<>(schema(asked)).write(value, encoder);
                encoder.flush();
                return out.toByteArray();
            case "protobuf": return ((Message) value).toByteArray();
            case "glue-json": return ((String) value.getClass().getMethod("getPayload").invoke(value)).getBytes("UTF-8");
            default: return MAPPER.writeValueAsBytes(value);
        }
    }

    static String json(String format, Object value, JsonNode asked) throws Exception {
        if (format.equals("protobuf"))
            return JsonFormat.printer().preservingProtoFieldNames().usingTypeRegistry(types(asked)).print((Message) value);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        Encoder encoder = EncoderFactory.get().jsonEncoder(schema(asked), out);
        new GenericDatumWriter<>(schema(asked)).write(value, encoder);
        encoder.flush();
        return out.toString("UTF-8");
    }

    static Object parse(String format, JsonNode asked) throws Exception {
        String text = asked.get("text").asText();
        if (format.equals("avro")) return read(schema(asked), DecoderFactory.get().jsonDecoder(schema(asked), text));
        DynamicMessage.Builder builder = DynamicMessage.newBuilder(descriptor(asked));
        JsonFormat.parser().usingTypeRegistry(types(asked)).merge(text, builder);
        return builder.build();
    }

    // Avro

    /** As they are in the bytes: without classes for logical types. */
    static Object read(Schema schema, Decoder decoder) throws IOException {
        return new GenericDatumReader<>(schema, schema, new GenericData()).read(null, decoder);
    }

    static Schema schema(JsonNode asked) { return new Schema.Parser().parse(asked.get("schema").asText()); }

    // Protobuf

    static List<FileDescriptor> files(JsonNode asked) throws Exception {
        var set = FileDescriptorSet.parseFrom(Base64.getDecoder().decode(asked.get("files").asText()));
        Map<String, FileDescriptor> found = new LinkedHashMap<>();
        for (FileDescriptorProto file : set.getFileList()) {
            var needed = file.getDependencyList().stream().map(found::get).toArray(FileDescriptor[]::new);
            found.put(file.getName(), FileDescriptor.buildFrom(file, needed));
        }
        return List.copyOf(found.values());
    }

    /** The message of the last file, by its name without the package. */
    static Descriptor descriptor(JsonNode asked) throws Exception {
        List<FileDescriptor> files = files(asked);
        Descriptor found = null;
        for (String name : asked.get("message").asText().split("\\."))
            found = found == null ? files.get(files.size() - 1).findMessageTypeByName(name) : found.findNestedTypeByName(name);
        return found;
    }

    static ExtensionRegistry extensions(JsonNode asked) throws Exception {
        ExtensionRegistry known = ExtensionRegistry.newInstance();
        for (FileDescriptor file : files(asked))
            for (Descriptor type : file.getMessageTypes())
                for (FieldDescriptor extension : type.getExtensions()) known.add(extension);
        return known;
    }

    static TypeRegistry types(JsonNode asked) throws Exception {
        TypeRegistry.Builder types = TypeRegistry.newBuilder();
        for (FileDescriptor file : files(asked)) types.add(file.getMessageTypes());
        return types.build();
    }
}
