package runmesh_test

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"google.golang.org/protobuf/proto"

	runmesh "github.com/runmesh/runmesh/sdk/go"
	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

const (
	head = `
apiVersion: runmesh/v1
kind: Plugin
metadata: {author: acme, name: support, version: 1.2.0}
components: [default.yaml, other.yaml]
`
	described = `
apiVersion: runmesh/v1
kind: AgentRunner
metadata: {name: default, label: Support, description: {en_US: Helps, zh_Hans: 帮助}, notes: {conformance.echo: "true"}}
capabilities: {streaming: true, event_context: false}
permissions: {models: [invoke, stream], storage: [plugin], platform_actions: [message.send]}
config_schema:
  - {name: chat, type: integer, label: Chat, default: 9007199254740993, bounds: {min: 0.5}}
  - {name: kind, type: select, label: Kind, default: null, options: [{value: a, label: A}], shown_when: {field: chat, equals: 1}}
`
)

func nothing(context.Context, *runmesh.Run) error { return nil }

func read(manifest, component string) (*runmesh.Plugin, error) {
	files := fstest.MapFS{
		"manifest.yaml": {Data: []byte(manifest)}, "default.yaml": {Data: []byte(component)},
		"other.yaml": {Data: []byte("{apiVersion: runmesh/v9, kind: Tool}")},
	}
	return runmesh.NewPlugin(files, map[string]runmesh.Runner{"default": nothing})
}

func TestManifestIsReadFromTheFilesThatTheHostReads(t *testing.T) {
	plugin, err := read(head, described)
	if err != nil {
		t.Fatal(err)
	}
	if plugin.ID != "acme/support" || plugin.Version != "1.2.0" || len(plugin.Manifests()) != 1 {
		t.Fatalf("it is %s %s with %d manifests", plugin.ID, plugin.Version, len(plugin.Manifests()))
	}
	no, least, chat, none := false, 0.5, "9007199254740993", "null"
	want := &pb.RunnerManifest{
		Id: "plugin:acme/support/default", Name: "default", ProtocolVersion: "1", Version: "1.2.0",
		Label:        text("en_US", "Support"),
		Description:  &pb.LocalizedText{Text: map[string]string{"en_US": "Helps", "zh_Hans": "帮助"}},
		Metadata:     map[string]string{"conformance.echo": "true"},
		Capabilities: &pb.RunnerCapabilities{Streaming: true, EventContext: &no},
		Permissions: &pb.RunnerPermissions{
			Models:          []pb.ModelPermission{pb.ModelPermission_MODEL_PERMISSION_INVOKE, pb.ModelPermission_MODEL_PERMISSION_STREAM},
			Storage:         []pb.StorageArea{pb.StorageArea_STORAGE_AREA_PLUGIN},
			PlatformActions: []string{"message.send"},
		},
		ConfigSchema: []*pb.ConfigField{
			{Name: "chat", Type: "integer", Label: text("en_US", "Chat"), DefaultJson: &chat, Bounds: &pb.ConfigBounds{Min: &least}},
			{
				Name: "kind", Type: "select", Label: text("en_US", "Kind"), DefaultJson: &none,
				Options:   []*pb.ConfigOption{{Value: "a", Label: text("en_US", "A")}},
				ShownWhen: &pb.ConfigCondition{Field: "chat", EqualsJson: "1"},
			},
		},
	}
	if !proto.Equal(plugin.Manifests()[0], want) {
		t.Errorf("it is %v\nand not %v", plugin.Manifests()[0], want)
	}
}

func text(locale, text string) *pb.LocalizedText {
	return &pb.LocalizedText{Text: map[string]string{locale: text}}
}

func TestManifestThatIsWrongIsRefused(t *testing.T) {
	for _, each := range []struct{ manifest, component, told string }{
		{strings.Replace(head, "author: acme", "author: Acme", 1), described, "author"},
		{strings.Replace(head, "runmesh/v1", "runmesh/v9", 1), described, "apiVersion"},
		{head, strings.Replace(described, "streaming", "steaming", 1), "steaming"},
		{head, strings.Replace(described, "[invoke", "[invent", 1), "INVENT"},
		{head, strings.Replace(described, "name: default", "name: second", 1), "second"},
		{head, "{", "default.yaml"},
		{strings.Replace(head, "default.yaml, ", "", 1), described, `"default"`},
	} {
		_, err := read(each.manifest, each.component)
		if err == nil || !strings.Contains(err.Error(), each.told) {
			t.Errorf("%q: got %v", each.told, err)
		}
	}
}
