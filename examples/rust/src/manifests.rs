//! What the process says of its runners: the same as the files in `components/`.

use std::collections::HashMap;

use crate::contract::{
    ArtifactAccess, ConfigBounds, ConfigField, ConfigOption, ContextPolicy, HistoryPermission,
    LocalizedText, RunnerCapabilities, RunnerManifest, RunnerPermissions, ToolPermission,
};
use crate::run::Runner;

pub const PLUGIN_ID: &str = "examples/rust";
pub const PROTOCOL_VERSION: &str = "1";
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The runner that an id names.
pub fn runner(id: &str) -> Option<Runner> {
    match id.strip_prefix("plugin:examples/rust/")? {
        "echo" => Some(Runner::Echo),
        "desk" => Some(Runner::Desk),
        _ => None,
    }
}

/// All runners, by id.
pub fn manifests() -> Vec<RunnerManifest> {
    vec![desk(), echo()]
}

fn desk() -> RunnerManifest {
    let tools = field("tools", "tool-multi-selector", "Tools it may call");
    RunnerManifest {
        capabilities: Some(RunnerCapabilities {
            streaming: true,
            tool_calling: true,
            interrupt: true,
            ..Default::default()
        }),
        permissions: Some(RunnerPermissions {
            tools: vec![ToolPermission::Call.into()],
            history: vec![HistoryPermission::Page.into()],
            artifacts: vec![ArtifactAccess::Create.into()],
            ..Default::default()
        }),
        config_schema: vec![tools],
        ..manifest(
            "desk",
            "Desk",
            "Counts, recalls, files, calls a tool, or waits, as the first word of a message asks.",
        )
    }
}

fn echo() -> RunnerManifest {
    let notes = [
        ("conformance.echo", "true"),
        ("conformance.slow_config_json", r#"{"delay_seconds": 60}"#),
    ];
    RunnerManifest {
        capabilities: Some(RunnerCapabilities {
            streaming: true,
            interrupt: true,
            ..Default::default()
        }),
        context_policy: Some(ContextPolicy {
            supports_history_pull: Some(false),
            supports_artifact_pull: Some(false),
            ..Default::default()
        }),
        config_schema: echo_fields(),
        metadata: notes
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        ..manifest("echo", "Echo", "Streams back what it is told.")
    }
}

fn echo_fields() -> Vec<ConfigField> {
    vec![
        ConfigField {
            default_json: Some("0".into()),
            bounds: between(0.0, 86_400.0),
            ..field("delay_seconds", "float", "Delay before the first piece (s)")
        },
        ConfigField {
            default_json: Some("0".into()),
            bounds: between(0.0, 86_400.0),
            ..field("interval_seconds", "float", "Pause between pieces (s)")
        },
        ConfigField {
            default_json: Some("0".into()),
            bounds: between(0.0, 100_000_000.0),
            description: text(
                "Sends so many pieces of the size below instead of the input. 0 sends the input.",
            ),
            ..field("repeat", "integer", "Number of pieces")
        },
        ConfigField {
            default_json: Some("6".into()),
            bounds: between(1.0, 1_048_000.0),
            ..field("size", "integer", "Size of such a piece (bytes)")
        },
        ConfigField {
            default_json: Some("true".into()),
            description: text("Without it the host completes the message from the pieces."),
            ..field("message", "boolean", "Send the whole message at the end")
        },
        ConfigField {
            default_json: Some(r#""none""#.into()),
            options: vec![option("none", "None"), option("error", "Ends as failed")],
            ..field("failure", "select", "Fault to show")
        },
    ]
}

fn manifest(name: &str, label: &str, description: &str) -> RunnerManifest {
    RunnerManifest {
        id: format!("plugin:{PLUGIN_ID}/{name}"),
        name: name.into(),
        label: text(label),
        description: text(description),
        protocol_version: PROTOCOL_VERSION.into(),
        version: VERSION.into(),
        ..Default::default()
    }
}

fn field(name: &str, kind: &str, label: &str) -> ConfigField {
    ConfigField {
        name: name.into(),
        r#type: kind.into(),
        label: text(label),
        ..Default::default()
    }
}

fn option(value: &str, label: &str) -> ConfigOption {
    ConfigOption {
        value: value.into(),
        label: text(label),
    }
}

fn between(min: f64, max: f64) -> Option<ConfigBounds> {
    Some(ConfigBounds {
        min: Some(min),
        max: Some(max),
        ..Default::default()
    })
}

fn text(english: &str) -> Option<LocalizedText> {
    Some(LocalizedText {
        text: HashMap::from([("en_US".into(), english.into())]),
    })
}
