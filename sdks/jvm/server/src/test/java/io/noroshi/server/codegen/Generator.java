package io.noroshi.server.codegen;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Generates {@code io.noroshi.server.types} and the classes {@code *Api} from the OpenAPI document. It knows the part
 * of OpenAPI 3.1 that the document uses, and fails at anything else. GeneratedTest compares the result with the
 * committed files.
 */
final class Generator {
    private static final String NOTE = "// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.\n";
    private static final String TYPES = "io.noroshi.server.types";

    /** Names of enumerations that several schemas have, by their values. */
    private static final Map<String, String> SHARED = Map.ofEntries(
            Map.entry("active,connected,stored", "When"),
            Map.entry("very-low,low,normal,high", "Urgency"),
            Map.entry("apns,fcm,webpush,webhook,hms,wns", "PushService"),
            Map.entry("production,sandbox", "ApnsEnvironment"),
            Map.entry("pending,done,cancelled,expired", "NotificationProgress"),
            Map.entry("users,devices,topic,condition,everyone,campaign", "TargetKind"),
            Map.entry("live,push,inbox", "DeliveryChannel"),
            Map.entry("campaign,extra", "CampaignLane"),
            Map.entry("apns,fcm", "ActivityTransport"),
            Map.entry("invited,anyone", "ActivityJoin"),
            Map.entry("update,end", "BroadcastEvent"),
            Map.entry("none,latest", "ChannelStorage"),
            Map.entry("subscribe,publish", "TopicAction"),
            Map.entry("ios,android,web,console,other", "Platform"));

    /** Request bodies that may lack required fields: a draft is complete when it starts. */
    private static final Set<String> LENIENT = Set.of("NewCampaign");

    /** Methods that use a part of their operation. */
    private static final Map<String, String> SUMMARIES = Map.of(
            "createDraft",
            "Keep a campaign as a draft, although parts are missing or invalid: `problems` of the answer says which",
            "count",
            "Count the audience of a campaign; create nothing");

    private final JsonNode document;
    private final Map<String, String> files = new TreeMap<>();
    private final Set<String> requests = new LinkedHashSet<>();
    private final Set<String> patches = new LinkedHashSet<>();
    private final Map<String, JsonNode> operations = new LinkedHashMap<>();
    private final Map<String, String> paths = new LinkedHashMap<>();
    private final Map<String, String> verbs = new LinkedHashMap<>();
    private final Map<String, List<String>> enums = new TreeMap<>();

    private Generator(JsonNode document) {
        this.document = document;
        document.get("paths")
                .properties()
                .forEach(path -> path.getValue().properties().forEach(verb -> {
                    JsonNode operation = verb.getValue();
                    if (!operation.has("operationId")) return;
                    String id = operation.get("operationId").asText();
                    operations.put(id, operation);
                    paths.put(id, path.getKey());
                    verbs.put(id, verb.getKey().toUpperCase());
                }));
    }

    /** Writes the files: openapi.json, and the folder of {@code io.noroshi.server}. */
    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[1]);
        for (String old : committed(folder).keySet()) Files.delete(folder.resolve(old));
        for (Map.Entry<String, String> file : generate(Path.of(arguments[0])).entrySet())
            Files.writeString(folder.resolve(file.getKey()), file.getValue());
    }

    /** The generated files in a folder. */
    static Map<String, String> committed(Path folder) throws IOException {
        Map<String, String> files = new TreeMap<>();
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path file : all.filter(one -> one.toString().endsWith(".java")).toList()) {
                String text = Files.readString(file);
                if (text.startsWith("// Generated"))
                    files.put(folder.relativize(file).toString(), text);
            }
        }
        return files;
    }

    /** The files by name, relative to the folder of {@code io.noroshi.server}. */
    static Map<String, String> generate(Path openapi) throws IOException {
        Generator generator = new Generator(new ObjectMapper().readTree(Files.readString(openapi)));
        generator.run();
        return generator.files;
    }

    private void run() {
        List<Operation> all = Operation.all();
        Set<String> known = all.stream().map(Operation::id).collect(Collectors.toSet());
        operations.forEach((id, operation) -> {
            boolean isForKeys = operation.path("security").toString().contains("apiKey");
            if (isForKeys && !known.contains(id) && !Operation.OTHERS.contains(id))
                throw new IllegalStateException("Operation.java does not name the operation " + id);
        });
        for (Operation operation : all) {
            JsonNode body = body(operations.get(operation.id()));
            if (body == null) continue;
            if (verbs.get(operation.id()).equals("PATCH")) patches.add(reference(body));
            markRequest(body);
        }
        for (String line : List.of("Notification", "DeviceRegistration", "Recipient")) {
            requests.add(line);
            markRequest(schema(line));
        }
        for (String line : List.of("Notification", "DeviceRegistration", "Recipient", "Receipt")) define(line);
        for (Map.Entry<String, String> api : Operation.APIS.entrySet())
            files.put(api.getKey() + ".java", api(api.getKey(), api.getValue(), all));
        errorCodes();
    }

    private JsonNode schema(String name) {
        JsonNode schema = document.at("/components/schemas/" + name);
        if (schema.isMissingNode()) throw new IllegalStateException("no schema " + name);
        return schema;
    }

    private static String reference(JsonNode schema) {
        return schema.get("$ref").asText().replaceAll(".*/", "");
    }

    private static JsonNode body(JsonNode operation) {
        JsonNode body = operation.at("/requestBody/content/application~1json/schema");
        return body.isMissingNode() ? null : body;
    }

    /** Types in request bodies get a builder. */
    private void markRequest(JsonNode schema) {
        if (schema.has("$ref")) {
            String name = reference(schema);
            if (requests.add(name)) markRequest(schema(name));
        }
        schema.forEach(child -> {
            if (child.isContainerNode()) markRequest(child);
        });
    }

    // Types.

    /** A Java type, without nullability. */
    private record Type(String java, List<String> alternatives) {
        Type(String java) {
            this(java, List.of());
        }
    }

    private final Set<String> defined = new LinkedHashSet<>();

    private void define(String name) {
        if (!defined.add(name)) return;
        JsonNode schema = schema(name);
        if (schema.has("enum")) enumeration(name, schema);
        else if (schema.has("oneOf")) union(name, schema);
        else record(name, schema, requests.contains(name));
    }

    private static boolean isNullable(JsonNode schema) {
        for (JsonNode type : schema.path("type")) if (type.asText().equals("null")) return true;
        for (String key : List.of("anyOf", "oneOf"))
            for (JsonNode one : schema.path(key)) if (one.path("type").asText().equals("null")) return true;
        return false;
    }

    private static String kind(JsonNode schema) {
        JsonNode type = schema.path("type");
        if (type.isTextual()) return type.asText();
        for (JsonNode one : type) if (!one.asText().equals("null")) return one.asText();
        return "";
    }

    private Type type(JsonNode schema, String owner, String property, boolean isRequest) {
        if (schema.has("$ref")) {
            String name = reference(schema);
            if (name.equals("Duration")) return new Type("Duration");
            define(name);
            return new Type(name);
        }
        List<JsonNode> alternatives = new ArrayList<>();
        for (String key : List.of("anyOf", "oneOf"))
            for (JsonNode one : schema.path(key)) if (!one.path("type").asText().equals("null")) alternatives.add(one);
        if (alternatives.size() == 1) return type(alternatives.get(0), owner, property, isRequest);
        if (!alternatives.isEmpty()) {
            List<String> all = new ArrayList<>();
            for (JsonNode one : alternatives) all.add(type(one, owner, property, isRequest).java);
            return new Type("Object", all);
        }
        if (schema.has("const")) return new Type(schema.get("const").isBoolean() ? "Boolean" : "String");
        if (schema.has("enum")) {
            JsonNode first = schema.get("enum").get(0);
            if (first.isBoolean()) return new Type("Boolean");
            if (first.isNumber()) return new Type("Integer");
            String values = values(schema).stream().collect(Collectors.joining(","));
            if (values.length() == 0) throw new IllegalStateException("an empty enum in " + owner);
            String name = values.startsWith("kept,written,")
                    ? "Outcome"
                    : values.startsWith("alert,webpush,")
                            ? "PushTokenKind"
                            : SHARED.getOrDefault(values, owner + upper(property));
            if (defined.add(name)) enumeration(name, schema);
            return new Type(name);
        }
        return switch (kind(schema)) {
            case "string" -> new Type(schema.path("format").asText().equals("date-time") ? "Instant" : "String");
            case "integer" ->
                new Type(schema.path("maximum").asLong(Long.MAX_VALUE) <= Integer.MAX_VALUE ? "Integer" : "Long");
            case "number" -> new Type("Double");
            case "boolean" -> new Type("Boolean");
            case "array" ->
                new Type("List<" + type(schema.get("items"), owner, singular(property), isRequest).java + ">");
            case "object" -> object(schema, owner, property, isRequest);
            case "" -> new Type("Object");
            default -> throw new IllegalStateException("an unknown type in " + owner + "." + property + ": " + schema);
        };
    }

    private Type object(JsonNode schema, String owner, String property, boolean isRequest) {
        if (schema.has("properties")) {
            String name = schema.get("properties").has("p256dh") ? "WebPushKeys" : owner + upper(property);
            if (defined.add(name)) record(name, schema, isRequest);
            return new Type(name);
        }
        JsonNode values = schema.path("additionalProperties");
        if (!values.isObject() || values.isEmpty())
            return new Type(patches.contains(owner) ? "Object" : "Map<String, @Nullable Object>");
        Type value = type(values, owner, singular(property), isRequest);
        return new Type("Map<String, " + (isNullable(values) ? "@Nullable " : "") + value.java + ">");
    }

    private record Property(String json, String java, Type type, boolean isNullable, String description) {
        String declared(boolean isPatch) {
            String name = isPatch ? "Change<" + type.java + ">" : isNullable ? type.java : primitive(type.java);
            return (isNullable ? "@Nullable " : "") + name;
        }
    }

    private static String primitive(String type) {
        return switch (type) {
            case "Integer" -> "int";
            case "Long" -> "long";
            case "Double" -> "double";
            case "Boolean" -> "boolean";
            default -> type;
        };
    }

    private List<Property> properties(String owner, JsonNode schema, boolean isRequest) {
        List<Property> all = new ArrayList<>();
        Set<String> required = new LinkedHashSet<>();
        schema.path("required").forEach(name -> required.add(name.asText()));
        if (LENIENT.contains(owner)) required.clear();
        schema.path("properties").properties().forEach(property -> {
            JsonNode one = property.getValue();
            String json = property.getKey();
            // A discriminator of a union, which its annotations write.
            if (one.has("const") && one.get("const").isTextual()) return;
            boolean isNullable = !required.contains(json) || isNullable(one);
            Type type = type(one, owner, json, isRequest);
            if (type.java.equals("Object") && type.alternatives.isEmpty()) isNullable = true;
            all.add(new Property(json, lower(json), type, isNullable, description(one, type)));
        });
        return all;
    }

    private String description(JsonNode property, Type type) {
        String text = property.path("description").asText("");
        if (!type.alternatives.isEmpty())
            text += (text.isEmpty() ? "" : " ")
                    + "One of these types: "
                    + String.join(", ", new LinkedHashSet<>(type.alternatives)) + ".";
        return text;
    }

    private void record(String name, JsonNode schema, boolean isRequest) {
        StringBuilder out = new StringBuilder();
        recordBody(out, "public ", name, schema, isRequest, "");
        file("types/" + name + ".java", TYPES, out.toString());
    }

    private void recordBody(
            StringBuilder out, String modifiers, String name, JsonNode schema, boolean isRequest, String interfaces) {
        boolean isPatch = patches.contains(name);
        List<Property> properties = properties(name, schema, isRequest);
        List<String> lines = new ArrayList<>();
        out.append("\n");
        String text = schema.path("description").asText("");
        if (!text.isEmpty()) lines.add(html(text));
        List<String> parameters = new ArrayList<>();
        for (Property one : properties)
            parameters.add(
                    "@param " + one.java + " " + (one.description.isEmpty() ? code(one.json) : html(one.description)));
        if (text.isEmpty())
            lines.add(
                    !interfaces.isEmpty()
                            ? "With " + code(schema.path("title").asText()) + "."
                            : isRequest ? "A part of a request." : "A part of an answer.");
        if (!parameters.isEmpty()) lines.add("");
        lines.addAll(parameters);
        javadoc(out, lines);
        out.append(modifiers).append("record ").append(name).append("(");
        out.append(properties.stream()
                .map(one -> annotation(one) + one.declared(isPatch && isOptional(schema, one)) + " " + one.java)
                .collect(Collectors.joining(", ")));
        out.append(")").append(interfaces).append(" {");
        if (isRequest) builder(out, name, schema, properties, isPatch);
        out.append("}\n");
    }

    private static boolean isOptional(JsonNode schema, Property property) {
        for (JsonNode name : schema.path("required")) if (name.asText().equals(property.json)) return false;
        return true;
    }

    private static String annotation(Property property) {
        return property.json.equals(property.java) ? "" : "@JsonProperty(\"" + property.json + "\") ";
    }

    private void builder(StringBuilder out, String name, JsonNode schema, List<Property> properties, boolean isPatch) {
        out.append("\n/** Builds one. */ public static Builder builder() { return new Builder(); }\n");
        out.append("\n/** Builds a {@link ").append(name).append("}. */\npublic static final class Builder {\n");
        for (Property one : properties)
            out.append("private @Nullable ")
                    .append(isPatch && isOptional(schema, one) ? "Change<" + one.type.java + ">" : one.type.java)
                    .append(" ")
                    .append(one.java)
                    .append(";\n");
        out.append("\nprivate Builder() {}\n");
        for (Property one : properties) {
            boolean isChange = isPatch && isOptional(schema, one);
            Set<String> types = new LinkedHashSet<>(
                    one.type.alternatives.isEmpty() ? List.of(one.type.java) : one.type.alternatives);
            for (String type : types) {
                out.append("\n");
                javadoc(out, List.of(one.description.isEmpty() ? code(one.json) : html(one.description)));
                boolean takesNull = !isChange && one.isNullable && types.size() == 1;
                out.append("public Builder ")
                        .append(one.java)
                        .append("(")
                        .append(takesNull ? "@Nullable " : "")
                        .append(isChange || !one.isNullable ? primitive(type) : type)
                        .append(" ")
                        .append(one.java)
                        .append(") { this.")
                        .append(one.java)
                        .append(" = ")
                        .append(isChange ? "Change.to(" + one.java + ")" : one.java)
                        .append("; return this; }\n");
            }
            if (isChange && isNullable(schema.get("properties").get(one.json)))
                out.append("\n/** Clears ")
                        .append(code(one.json))
                        .append(". */\npublic Builder clear")
                        .append(upper(one.json))
                        .append("() { ")
                        .append(one.java)
                        .append(" = Change.clear(); return this; }\n");
        }
        out.append("\npublic ")
                .append(name)
                .append(" build() { return new ")
                .append(name)
                .append("(");
        out.append(properties.stream()
                .map(one ->
                        one.isNullable ? one.java : "Objects.requireNonNull(" + one.java + ", \"" + one.java + "\")")
                .collect(Collectors.joining(", ")));
        out.append("); }\n}\n");
    }

    /** A union of objects, which differ by a constant or by their only field. */
    private void union(String name, JsonNode schema) {
        StringBuilder out = new StringBuilder();
        List<String> titles = new ArrayList<>();
        String discriminator = null;
        for (JsonNode one : schema.get("oneOf")) {
            if (!one.has("title")) throw new IllegalStateException("an alternative of " + name + " has no title");
            titles.add(upper(one.get("title").asText()));
            for (Map.Entry<String, JsonNode> field : one.get("properties").properties())
                if (field.getValue().path("const").isTextual()) discriminator = field.getKey();
        }
        String text = schema.path("description").asText("");
        javadoc(out, List.of(html(text)));
        if (discriminator != null) {
            out.append("@JsonTypeInfo(use = JsonTypeInfo.Id.NAME, property = \"")
                    .append(discriminator)
                    .append("\")\n");
            out.append("@JsonSubTypes({");
            List<String> subtypes = new ArrayList<>();
            for (JsonNode one : schema.get("oneOf"))
                subtypes.add("@JsonSubTypes.Type(value = " + name + "."
                        + upper(one.get("title").asText())
                        + ".class, name = \""
                        + one.get("properties").get(discriminator).get("const").asText() + "\")");
            out.append(String.join(", ", subtypes)).append("})\n");
        }
        out.append("public sealed interface ").append(name).append(" {\n");
        for (JsonNode one : schema.get("oneOf")) {
            String title = upper(one.get("title").asText());
            List<Property> properties = properties(name + title, one, true);
            if (discriminator == null) factory(out, name, title, properties);
            else recordBody(out, "", title, one, true, " implements " + name);
            if (discriminator == null) recordBody(out, "", title, one, false, " implements " + name);
        }
        out.append("}\n");
        file("types/" + name + ".java", TYPES, out.toString());
    }

    private static void factory(StringBuilder out, String name, String title, List<Property> properties) {
        if (properties.size() != 1) throw new IllegalStateException(name + "." + title + " has several fields");
        Property only = properties.get(0);
        String method = lower(only.json);
        out.append("\n");
        javadoc(out, List.of(only.description.isEmpty() ? code(only.json) : html(only.description)));
        boolean isFlag = only.type.java.equals("Boolean");
        out.append("static ").append(name).append(" ").append(method).append("(");
        if (!isFlag) out.append(only.type.java).append(" ").append(only.java);
        out.append(") { return new ")
                .append(title)
                .append("(")
                .append(isFlag ? "true" : only.java)
                .append("); }\n");
        if (only.type.java.equals("List<String>")) {
            out.append("\n");
            javadoc(out, List.of(only.description.isEmpty() ? code(only.json) : html(only.description)));
            out.append("static ")
                    .append(name)
                    .append(" ")
                    .append(method)
                    .append("(String... ")
                    .append(only.java);
            out.append(") { return new ")
                    .append(title)
                    .append("(List.of(")
                    .append(only.java)
                    .append(")); }\n");
        }
    }

    private static List<String> values(JsonNode schema) {
        List<String> values = new ArrayList<>();
        for (JsonNode value : schema.get("enum")) if (!value.isNull()) values.add(value.asText());
        return values;
    }

    private void enumeration(String name, JsonNode schema) {
        List<String> values = values(schema);
        enums.put(name, values);
        StringBuilder out = new StringBuilder();
        String text = schema.path("description").asText("");
        javadoc(out, List.of(text.isEmpty() ? "Values of the API." : html(text)));
        out.append("public enum ").append(name).append(" {\n");
        for (String value : values)
            out.append("@JsonProperty(\"")
                    .append(value)
                    .append("\") ")
                    .append(value.replaceAll("[^a-zA-Z0-9]", "_")
                            .replaceAll("^(\\d)", "_$1")
                            .toUpperCase())
                    .append(",\n");
        out.append("/** A value that this version of the library does not know. */\n");
        out.append("@JsonEnumDefaultValue UNRECOGNIZED\n}\n");
        file("types/" + name + ".java", TYPES, out.toString());
    }

    private void errorCodes() {
        StringBuilder out = new StringBuilder();
        out.append(
                "/** Codes of problem documents. {@code /docs} on a node explains each. Later versions of the service may add some. */\n");
        out.append("public final class ProblemCode {\n");
        for (String code : values(schema("Problem").at("/properties/code")))
            out.append("public static final String ")
                    .append(code.toUpperCase())
                    .append(" = \"")
                    .append(code)
                    .append("\";\n");
        out.append("\nprivate ProblemCode() {}\n}\n");
        file("types/ProblemCode.java", TYPES, out.toString());
    }

    // Classes with methods.

    private String api(String name, String text, List<Operation> all) {
        StringBuilder out = new StringBuilder();
        boolean isApp = name.equals("AppApi");
        javadoc(out, List.of(text));
        out.append("public final class ").append(name).append(" {\nprivate final Http http;\n");
        if (isApp) out.append("private final String app;\n");
        out.append("\n")
                .append(name)
                .append("(Http http")
                .append(isApp ? ", String app" : "")
                .append(") {\nthis.http = http;\n");
        if (isApp) out.append("this.app = app;\n");
        out.append("}\n");
        for (Operation operation : all) if (operation.api().equals(name)) method(out, operation, isApp);
        out.append("}\n");
        return NOTE + "package io.noroshi.server;\n\n" + imports(out.toString(), false) + "\n" + out;
    }

    private void method(StringBuilder out, Operation operation, boolean isApp) {
        JsonNode node = operations.get(operation.id());
        if (node == null) throw new IllegalStateException("the document has no operation " + operation.id());
        String verb = verbs.get(operation.id());
        String path = paths.get(operation.id());
        String page = operation.value("page");
        List<String> required = new ArrayList<>();
        List<String> optional = new ArrayList<>();
        List<String> pathNames = new ArrayList<>();
        List<JsonNode> queries = new ArrayList<>();
        List<String> docs = new ArrayList<>();
        for (JsonNode parameter : node.path("parameters")) {
            String in = parameter.path("in").asText();
            String json = parameter.path("name").asText();
            String java = lower(json);
            if (in.equals("path")) {
                pathNames.add(java);
                if (isApp && java.equals("app")) continue;
                required.add("String " + java);
                docs.add(parameterDoc(parameter, java));
            } else if (in.equals("query")
                    && operation.value(json).isEmpty()
                    && isForKeys(json)
                    && !operation.id().equals("createCampaign")) queries.add(parameter);
        }
        JsonNode body = body(node);
        if (body != null) {
            required.add(type(body, "", "", true).java + " body");
            docs.add("@param body the request");
        }
        String queryType = null;
        if (!page.isEmpty()) {
            queryType = query(operation, queries);
        } else
            for (JsonNode parameter : queries) {
                String java = lower(parameter.get("name").asText());
                Type type = type(
                        parameter.get("schema"),
                        upper(operation.id()),
                        parameter.get("name").asText(),
                        false);
                (parameter.path("required").asBoolean() ? required : optional)
                        .add((parameter.path("required").asBoolean() ? "" : "@Nullable ") + type.java + " " + java);
                docs.add(parameterDoc(parameter, java));
            }
        String result = result(operation, node);
        String method = operation.method();
        List<String> lines = new ArrayList<>();
        String summary = SUMMARIES.getOrDefault(method, node.path("summary").asText());
        lines.add(html(sentence(summary)));
        String description =
                SUMMARIES.containsKey(method) ? "" : node.path("description").asText("");
        for (String paragraph : description.split("\n\n"))
            if (!paragraph.isBlank()) lines.addAll(List.of("", "<p>" + html(paragraph.trim())));
        StringBuilder call = new StringBuilder();
        call.append("http.call(\"").append(verb).append("\", \"").append(path).append("\")");
        for (String one : pathNames)
            call.append(".path(\"").append(one).append("\", ").append(one).append(")");
        for (String flag : operation.flags())
            if (flag.endsWith("=true"))
                call.append(".query(\"").append(flag.replace("=true", "")).append("\", true)");
        if (page.isEmpty())
            for (JsonNode parameter : queries) {
                String json = parameter.get("name").asText();
                call.append(".query(\"")
                        .append(json)
                        .append("\", ")
                        .append(lower(json))
                        .append(")");
            }
        if (body != null) call.append(".body(body)");
        if (operation.is("safe")) call.append(".safe()");
        if (operation.is("unsafe")) call.append(".unsafe()");
        if (operation.is("idempotent")) call.append(".idempotent()");
        if (!page.isEmpty()) {
            page(out, operation, node, lines, required, docs, pathNames, queryType, call.toString(), page);
            return;
        }
        List<String> everything = new ArrayList<>(required);
        everything.addAll(optional);
        String send = call + (result.equals("void") ? ".send()" : ".send(" + result + ".class)");
        String arguments = names(everything);
        boolean isVoid = result.equals("void");
        methods(out, lines, docs, result, method, everything, arguments, send, isVoid);
        if (!optional.isEmpty()) {
            String shorter = names(required);
            String nulls = optional.stream().map(one -> "null").collect(Collectors.joining(", "));
            String all = shorter.isEmpty() ? nulls : shorter + ", " + nulls;
            out.append("\n");
            javadoc(out, List.of(html(sentence(node.path("summary").asText()))));
            out.append("public ")
                    .append(result)
                    .append(" ")
                    .append(method)
                    .append("(")
                    .append(String.join(", ", required));
            out.append(") { ")
                    .append(isVoid ? "" : "return ")
                    .append(method)
                    .append("(")
                    .append(all)
                    .append("); }\n");
        }
    }

    /** The device's parameters, which name its app. */
    private static boolean isForKeys(String query) {
        return !query.equals("app");
    }

    private static void methods(
            StringBuilder out,
            List<String> lines,
            List<String> docs,
            String result,
            String method,
            List<String> parameters,
            String arguments,
            String send,
            boolean isVoid) {
        String list = String.join(", ", parameters);
        String boxed = isVoid ? "@Nullable Void" : result;
        List<String> all = new ArrayList<>(lines);
        if (!docs.isEmpty()) all.add("");
        all.addAll(docs);
        out.append("\n");
        javadoc(out, all);
        out.append("public ")
                .append(result)
                .append(" ")
                .append(method)
                .append("(")
                .append(list)
                .append(") { ");
        out.append(isVoid ? "" : "return ")
                .append("Http.await(")
                .append(method)
                .append("Async(")
                .append(arguments)
                .append(")); }\n\n");
        String types = parameters.stream()
                .map(one -> one.replaceAll("@Nullable ", "")
                        .replaceAll(" \\w+$", "")
                        .replaceAll("<.*>", ""))
                .collect(Collectors.joining(", "));
        javadoc(out, List.of("As {@link #" + method + "(" + types + ")}, without a wait."));
        out.append("public CompletableFuture<")
                .append(boxed)
                .append("> ")
                .append(method)
                .append("Async(")
                .append(list);
        out.append(") { return ").append(send).append("; }\n");
    }

    private void page(
            StringBuilder out,
            Operation operation,
            JsonNode node,
            List<String> lines,
            List<String> required,
            List<String> docs,
            List<String> pathNames,
            String queryType,
            String call,
            String field) {
        String pageType = result(operation, node);
        JsonNode items = schema(pageType).at("/properties/" + field + "/items");
        String item = type(items, pageType, singular(field), false).java;
        List<String> parameters = new ArrayList<>(required);
        parameters.add(queryType + " query");
        List<String> all = new ArrayList<>(lines);
        all.add("");
        all.addAll(docs);
        all.add("@param query which ones");
        out.append("\n");
        javadoc(out, all);
        out.append("public Pages<")
                .append(item)
                .append("> ")
                .append(operation.method())
                .append("(");
        out.append(String.join(", ", parameters))
                .append(") { return new Pages<>(query.after(), after -> ")
                .append(call);
        out.append(".query(query.parameters()).query(\"after\", after).send(")
                .append(pageType)
                .append(".class)");
        out.append(".thenApply(page -> new Page<>(page.").append(lower(field)).append("(), page.next()))); }\n\n");
        javadoc(out, List.of(html(sentence(node.path("summary").asText()))));
        out.append("public Pages<")
                .append(item)
                .append("> ")
                .append(operation.method())
                .append("(");
        out.append(String.join(", ", required))
                .append(") { return ")
                .append(operation.method())
                .append("(");
        String names = names(required);
        out.append(names.isEmpty() ? "" : names + ", ").append(queryType).append(".ALL); }\n");
    }

    /** A record for the parameters of a list. */
    private String query(Operation operation, List<JsonNode> parameters) {
        String name = upper(operation.id()) + "Query";
        if (!defined.add(name)) return name;
        StringBuilder out = new StringBuilder();
        List<String> docs = new ArrayList<>(List.of("Which entries to list. Everything is optional.", ""));
        List<String> components = new ArrayList<>();
        List<String> values = new ArrayList<>();
        StringBuilder builder = new StringBuilder();
        List<String> names = new ArrayList<>();
        for (JsonNode parameter : parameters) {
            String json = parameter.get("name").asText();
            String java = lower(json);
            Type type = type(parameter.get("schema"), name, json, false);
            docs.add(parameterDoc(parameter, java));
            components.add("@Nullable " + type.java + " " + java);
            names.add(java);
            if (!json.equals("after")) values.add("parameters.put(\"" + json + "\", " + java + ");");
            builder.append("\n");
            javadoc(builder, List.of(parameterText(parameter, java)));
            builder.append("public Builder ")
                    .append(java)
                    .append("(@Nullable ")
                    .append(type.java)
                    .append(" ")
                    .append(java);
            builder.append(") { this.").append(java).append(" = ").append(java).append("; return this; }\n");
        }
        javadoc(out, docs);
        out.append("public record ")
                .append(name)
                .append("(")
                .append(String.join(", ", components))
                .append(") {\n");
        out.append("/** Everything. */\npublic static final ").append(name).append(" ALL = builder().build();\n");
        out.append("\n/** Builds one. */\npublic static Builder builder() { return new Builder(); }\n");
        out.append("\n/** The parameters of the request, except {@code after}. */\n");
        out.append(
                "public Map<String, @Nullable Object> parameters() { Map<String, @Nullable Object> parameters = new LinkedHashMap<>();\n");
        values.forEach(out::append);
        out.append("return parameters; }\n\n/** Builds a {@link ")
                .append(name)
                .append("}. */\npublic static final class Builder {\n");
        components.forEach(component -> out.append("private ").append(component).append(";\n"));
        out.append("\nprivate Builder() {}\n").append(builder);
        out.append("\npublic ")
                .append(name)
                .append(" build() { return new ")
                .append(name)
                .append("(");
        out.append(String.join(", ", names)).append("); }\n}\n}\n");
        file("types/" + name + ".java", TYPES, out.toString());
        return name;
    }

    private static String parameterText(JsonNode parameter, String java) {
        String text = parameter.path("description").asText("");
        if (text.isEmpty()) text = parameter.path("schema").path("description").asText("");
        return text.isEmpty() ? code(java) : html(text);
    }

    private static String parameterDoc(JsonNode parameter, String java) {
        return "@param " + java + " " + parameterText(parameter, java);
    }

    private String result(Operation operation, JsonNode node) {
        String wanted = operation.value("status");
        String found = "void";
        for (Map.Entry<String, JsonNode> response : node.get("responses").properties()) {
            if (!response.getKey().startsWith("2")) continue;
            if (!wanted.isEmpty() && !wanted.equals(response.getKey())) continue;
            JsonNode schema = response.getValue().at("/content/application~1json/schema");
            if (!schema.isMissingNode()) found = type(schema, upper(operation.id()), "answer", false).java;
        }
        return found;
    }

    private static String names(List<String> parameters) {
        return parameters.stream().map(one -> one.replaceAll(".* ", "")).collect(Collectors.joining(", "));
    }

    // Text.

    private void file(String name, String packageName, String body) {
        files.put(name, NOTE + "package " + packageName + ";\n\n" + imports(body, true) + "\n" + body);
    }

    private String imports(String body, boolean isType) {
        Map<String, String> known = new TreeMap<>();
        known.put("JsonProperty", "com.fasterxml.jackson.annotation.JsonProperty");
        known.put("JsonEnumDefaultValue", "com.fasterxml.jackson.annotation.JsonEnumDefaultValue");
        known.put("JsonTypeInfo", "com.fasterxml.jackson.annotation.JsonTypeInfo");
        known.put("JsonSubTypes", "com.fasterxml.jackson.annotation.JsonSubTypes");
        known.put("Duration", "java.time.Duration");
        known.put("Instant", "java.time.Instant");
        known.put("List", "java.util.List");
        known.put("Map", "java.util.Map");
        known.put("LinkedHashMap", "java.util.LinkedHashMap");
        known.put("Objects", "java.util.Objects");
        known.put("CompletableFuture", "java.util.concurrent.CompletableFuture");
        known.put("Nullable", "org.jspecify.annotations.Nullable");
        if (isType) known.put("Change", "io.noroshi.server.Change");
        else for (String type : defined) known.put(type, TYPES + "." + type);
        known.remove("Void");
        Set<String> used = new TreeSet<>();
        String code = body.replaceAll("(?s)/\\*\\*.*?\\*/", "");
        known.forEach((name, full) -> {
            if (code.matches("(?s).*(?<![\\w.\"])" + name + "\\b(?!\").*")) used.add("import " + full + ";\n");
        });
        return String.join("", used);
    }

    private static void javadoc(StringBuilder out, List<String> lines) {
        out.append("/**\n");
        for (String line : lines) out.append(" * ").append(line).append("\n");
        out.append(" */\n");
    }

    private static String sentence(String text) {
        return text.endsWith(".") ? text : text + ".";
    }

    private static String code(String text) {
        return "{@code " + text + "}";
    }

    /** Markdown as it occurs in the document, as HTML for javadoc. */
    private static String html(String text) {
        StringBuilder out = new StringBuilder();
        String[] parts = text.replace("\n", " ").split("`", -1);
        for (int n = 0; n < parts.length; n++) {
            boolean isCode = n % 2 == 1 && n < parts.length - 1;
            String part = parts[n].replace("*/", "*&#47;");
            if (isCode && !part.matches(".*[{}@].*")) out.append(code(part));
            else {
                String escaped = part.replace("&", "&amp;")
                        .replace("<", "&lt;")
                        .replace(">", "&gt;")
                        .replace("@", "&#64;");
                out.append(
                        isCode
                                ? "<code>" + escaped.replace("{", "&#123;").replace("}", "&#125;") + "</code>"
                                : escaped);
            }
        }
        return out.toString();
    }

    private static String singular(String name) {
        if (name.endsWith("ies")) return name.substring(0, name.length() - 3) + "y";
        return name.endsWith("s") && !name.endsWith("ss") ? name.substring(0, name.length() - 1) : name;
    }

    private static String upper(String name) {
        return Arrays.stream(name.split("[_-]"))
                .filter(part -> !part.isEmpty())
                .map(part -> part.substring(0, 1).toUpperCase() + part.substring(1))
                .collect(Collectors.joining());
    }

    private static String lower(String name) {
        String upper = upper(name);
        return upper.substring(0, 1).toLowerCase() + upper.substring(1);
    }
}
