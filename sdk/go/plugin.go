package runmesh

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

const (
	apiVersion      = "runmesh/v1"
	protocolVersion = "1"
)

var idPart = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// A Runner answers one event: it sends results with [Run.Send] and returns when it has said
// everything. Nil ends the run well; a [Failure] ends it with its code, any other error with
// `runner.error`.
//
// ctx ends when the run is cancelled, interrupted, or out of time; whatever the runner waits for
// has to end then.
type Runner func(ctx context.Context, run *Run) error

// A Plugin is what one process serves: its manifests, and a runner for each.
type Plugin struct {
	ID      string // author/name
	Version string

	manifests []*pb.RunnerManifest
	runners   map[string]Runner // by runner id
}

// NewPlugin reads manifest.yaml and the components that it lists, the only place where a plugin is
// described, and gives each of its runners the code that has its name.
//
// The files are best embedded, so that the program says the same wherever it runs.
func NewPlugin(files fs.FS, runners map[string]Runner) (*Plugin, error) {
	var head struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Author, Name, Version string }
		Components []string
	}
	if err := readYAML(files, "manifest.yaml", &head); err != nil {
		return nil, err
	}
	if head.APIVersion != apiVersion || head.Kind != "Plugin" {
		return nil, fmt.Errorf("manifest.yaml: must be of apiVersion %s and kind Plugin", apiVersion)
	}
	meta := head.Metadata
	if !idPart.MatchString(meta.Author) || !idPart.MatchString(meta.Name) || meta.Version == "" {
		return nil, fmt.Errorf("manifest.yaml: metadata needs author and name, matching %s, and version", idPart)
	}
	plugin := &Plugin{
		ID: meta.Author + "/" + meta.Name, Version: meta.Version, runners: map[string]Runner{},
	}
	missing := maps.Clone(runners)
	for _, file := range head.Components {
		manifest, err := plugin.readRunner(files, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if manifest == nil {
			continue
		}
		runner := runners[manifest.Name]
		if runner == nil || plugin.runners[manifest.Id] != nil {
			return nil, fmt.Errorf("%s: %s must have exactly one runner of that name", file, manifest.Name)
		}
		delete(missing, manifest.Name)
		plugin.runners[manifest.Id] = runner
		plugin.manifests = append(plugin.manifests, manifest)
	}
	for name := range missing {
		return nil, fmt.Errorf("manifest.yaml: no component describes the runner %q", name)
	}
	slices.SortFunc(plugin.manifests, func(a, b *pb.RunnerManifest) int { return strings.Compare(a.Id, b.Id) })
	return plugin, nil
}

// Manifests are those of its runners, by id.
func (p *Plugin) Manifests() []*pb.RunnerManifest { return p.manifests }

// readRunner reads a component; nil where it is of another kind than AgentRunner.
func (p *Plugin) readRunner(files fs.FS, file string) (*pb.RunnerManifest, error) {
	var values map[string]any
	if err := readYAML(files, file, &values); err != nil {
		return nil, err
	}
	kind, version := values["kind"], values["apiVersion"]
	if kind != "AgentRunner" {
		return nil, nil
	}
	if version != apiVersion {
		return nil, fmt.Errorf("apiVersion must be %s", apiVersion)
	}
	delete(values, "kind")
	delete(values, "apiVersion")
	metadata, _ := values["metadata"].(map[string]any)
	delete(values, "metadata")
	name, _ := metadata["name"].(string)
	if !idPart.MatchString(name) {
		return nil, fmt.Errorf("metadata.name must match %s", idPart)
	}
	// What identifies a runner follows from the plugin; the rest of metadata is the manifest's own.
	values["id"] = "plugin:" + p.ID + "/" + name
	values["protocol_version"] = protocolVersion
	values["version"] = p.Version
	for key, value := range metadata {
		if key == "notes" {
			key = "metadata"
		}
		values[key] = value
	}
	manifest := &pb.RunnerManifest{}
	adapted, err := json.Marshal(adapt(manifest.ProtoReflect().Descriptor(), values))
	if err != nil {
		return nil, err
	}
	return manifest, protojson.Unmarshal(adapted, manifest)
}

// adapt turns what a manifest says in YAML into the contract's JSON: enum values go by their short
// names, a LocalizedText may be one plain text, and a field `x_json` is written as `x` with any
// value. What is not known stays as it is, and is refused when it is read.
func adapt(message protoreflect.MessageDescriptor, value any) any {
	if message.FullName() == "runmesh.v1.LocalizedText" {
		if text, isText := value.(string); isText {
			value = map[string]any{"en_US": text}
		}
		return map[string]any{"text": value}
	}
	values, isMapping := value.(map[string]any)
	if !isMapping {
		return value
	}
	adapted := make(map[string]any, len(values))
	for key, value := range values {
		if message.Fields().ByName(protoreflect.Name(key+"_json")) != nil {
			text, err := json.Marshal(value)
			if err == nil {
				adapted[key+"_json"] = string(text)
				continue
			}
		}
		field := message.Fields().ByName(protoreflect.Name(key))
		if field != nil && !field.IsMap() {
			value = adaptField(field, value)
		}
		adapted[key] = value
	}
	return adapted
}

func adaptField(field protoreflect.FieldDescriptor, value any) any {
	if entries, isList := value.([]any); isList {
		adapted := make([]any, len(entries))
		for index, entry := range entries {
			adapted[index] = adaptField(field, entry)
		}
		return adapted
	}
	switch {
	case field.Message() != nil:
		return adapt(field.Message(), value)
	case field.Enum() != nil:
		if name, isText := value.(string); isText {
			unset := string(field.Enum().Values().ByNumber(0).Name())
			return strings.TrimSuffix(unset, "UNSPECIFIED") + strings.ToUpper(name)
		}
	}
	return value
}

func readYAML(files fs.FS, name string, into any) error {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
