package dev.runmesh.examples;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.protobuf.Descriptors.EnumDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.yaml.snakeyaml.LoaderOptions;
import org.yaml.snakeyaml.Yaml;
import org.yaml.snakeyaml.constructor.SafeConstructor;
import runmesh.v1.Manifest.RunnerManifest;
import runmesh.v1.Types.LocalizedText;

/**
 * What the plugin is: its {@code manifest.yaml} and components, the only place where that is said.
 *
 * @param id {@code author/name}
 * @param runners the manifests of its runners, by id
 */
record Plugin(String id, String version, List<RunnerManifest> runners) {
  /** The version of the contract that it speaks. */
  static final String PROTOCOL_VERSION = "1";

  private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().create();

  /** Reads the manifest that lies beside the classes. */
  static Plugin read() throws IOException {
    Map<String, Object> manifest = readYaml("/manifest.yaml");
    Map<?, ?> metadata = (Map<?, ?>) manifest.get("metadata");
    String id = metadata.get("author") + "/" + metadata.get("name");
    String version = (String) metadata.get("version");
    List<RunnerManifest> runners = new ArrayList<>();
    for (Object file : (List<?>) manifest.get("components")) {
      runners.add(runner(id, version, readYaml("/" + file)));
    }
    runners.sort(Comparator.comparing(RunnerManifest::getId));
    return new Plugin(id, version, List.copyOf(runners));
  }

  private static RunnerManifest runner(String plugin, String version, Map<String, Object> values) {
    Map<?, ?> metadata = (Map<?, ?>) values.remove("metadata");
    RunnerManifest.Builder manifest = RunnerManifest.newBuilder();
    metadata.forEach(
        (name, value) -> set(manifest, name.equals("notes") ? "metadata" : name, value));
    values.remove("apiVersion");
    values.remove("kind");
    fill(manifest, values);
    return manifest
        .setId("plugin:" + plugin + "/" + manifest.getName())
        .setProtocolVersion(PROTOCOL_VERSION)
        .setVersion(version)
        .build();
  }

  /**
   * Fills a message of the contract from YAML. There, enum values go by their short names, a
   * LocalizedText is its map alone, and a field {@code x_json} is written as {@code x}.
   */
  private static void fill(Message.Builder message, Map<?, ?> values) {
    values.forEach((name, value) -> set(message, name, value));
  }

  private static void set(Message.Builder message, Object name, Object value) {
    FieldDescriptor json = message.getDescriptorForType().findFieldByName(name + "_json");
    if (json != null) {
      message.setField(json, GSON.toJson(value));
      return;
    }
    FieldDescriptor field = message.getDescriptorForType().findFieldByName((String) name);
    if (field == null) {
      throw new IllegalArgumentException("there is no field " + name);
    }
    if (field.isMapField()) {
      ((Map<?, ?>) value)
          .forEach(
              (key, entry) ->
                  message.addRepeatedField(
                      field, convert(message, field, Map.of("key", key, "value", entry))));
    } else if (field.isRepeated()) {
      ((List<?>) value)
          .forEach(entry -> message.addRepeatedField(field, convert(message, field, entry)));
    } else {
      message.setField(field, convert(message, field, value));
    }
  }

  private static Object convert(Message.Builder message, FieldDescriptor field, Object value) {
    return switch (field.getJavaType()) {
      case MESSAGE -> {
        Message.Builder part = message.newBuilderForField(field);
        boolean isText = part instanceof LocalizedText.Builder;
        fill(part, isText ? Map.of("text", value) : (Map<?, ?>) value);
        yield part.build();
      }
      case ENUM -> {
        EnumDescriptor type = field.getEnumType();
        String prefix = type.findValueByNumber(0).getName().replace("UNSPECIFIED", "");
        yield type.findValueByName(prefix + value.toString().toUpperCase(Locale.ROOT));
      }
      case INT -> ((Number) value).intValue();
      case LONG -> ((Number) value).longValue();
      case DOUBLE -> ((Number) value).doubleValue();
      default -> value;
    };
  }

  private static Map<String, Object> readYaml(String name) throws IOException {
    try (InputStream file = Plugin.class.getResourceAsStream(name)) {
      if (file == null) {
        throw new IOException(name + " is missing");
      }
      return new Yaml(new SafeConstructor(new LoaderOptions())).load(file);
    }
  }
}
