package runmesh

import (
	"encoding/json"
	"fmt"
	"strings"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

// A Result is one item of a run's output. The functions below make the usual ones; any other is
// made from the contract's own types. Its run, number and time are filled in when it is sent.
type Result = pb.RunResult

// Delta is a piece of text of the message in progress.
func Delta(text string) *Result {
	return &Result{Payload: &pb.RunResult_MessageDelta{MessageDelta: &pb.MessageDelta{Text: clean(text)}}}
}

// Reasoning is a piece of reasoning, shown apart from the message.
func Reasoning(text string) *Result {
	return &Result{Payload: &pb.RunResult_MessageDelta{MessageDelta: &pb.MessageDelta{ReasoningText: clean(text)}}}
}

// Reply is a whole message of text; it takes the place of the deltas before it.
func Reply(text string) *Result {
	return Message(&pb.ChatMessage{Parts: []*pb.ContentPart{{Content: &pb.ContentPart_Text{Text: clean(text)}}}})
}

// Message is a whole message of the assistant's.
func Message(message *pb.ChatMessage) *Result {
	message.Role = pb.ChatRole_CHAT_ROLE_ASSISTANT
	return &Result{Payload: &pb.RunResult_MessageCompleted{MessageCompleted: &pb.MessageCompleted{Message: message}}}
}

// ToolStarted says that a tool call has begun; the parameters are one JSON value. Whatever else they are, as a model or
// a person may write them, is shown as it is.
func ToolStarted(callID, tool, parameters string) *Result {
	started, parameters := &pb.ToolCallStarted{CallId: callID, ToolName: tool}, clean(parameters)
	if json.Valid([]byte(parameters)) {
		started.ParametersJson = &parameters
	} else {
		started.Preview = parameters
	}
	return &Result{Payload: &pb.RunResult_ToolCallStarted{ToolCallStarted: started}}
}

// ToolCompleted says that a tool call has ended well, with a short form of what came of it.
func ToolCompleted(callID, tool, preview string) *Result {
	return &Result{Payload: &pb.RunResult_ToolCallCompleted{ToolCallCompleted: &pb.ToolCallCompleted{
		CallId: callID, ToolName: tool, Preview: clean(preview),
	}}}
}

// ToolFailed says that a tool call has ended badly, with a word for why and a text for people.
func ToolFailed(callID, tool, code, message string) *Result {
	return &Result{Payload: &pb.RunResult_ToolCallCompleted{ToolCallCompleted: &pb.ToolCallCompleted{
		CallId: callID, ToolName: tool, ErrorCode: code, ErrorMessage: clean(message),
	}}}
}

// Artifact says that an artifact, uploaded before, belongs to the conversation.
func Artifact(ref *pb.ArtifactRef) *Result {
	return &Result{Payload: &pb.RunResult_ArtifactCreated{ArtifactCreated: &pb.ArtifactCreated{
		Artifact: &pb.ArtifactCreated_Ref{Ref: ref},
	}}}
}

// InlineArtifact is an artifact of at most 1 MiB, carried along.
func InlineArtifact(name, mimeType string, data []byte) *Result {
	return &Result{Payload: &pb.RunResult_ArtifactCreated{ArtifactCreated: &pb.ArtifactCreated{
		Artifact: &pb.ArtifactCreated_Inline{Inline: &pb.InlineContent{Data: data, Name: name, MimeType: mimeType}},
	}}}
}

// StateUpdate keeps a value of state, one JSON value; nothing says whether it was taken.
func StateUpdate(scope pb.StateScope, key, valueJSON string) *Result {
	return &Result{Payload: &pb.RunResult_StateUpdated{StateUpdated: &pb.StateUpdated{
		Scope: scope, Key: key, ValueJson: valueJSON,
	}}}
}

// Action asks for an action on the platform.
func Action(action *pb.ActionRequested) *Result {
	return &Result{Payload: &pb.RunResult_ActionRequested{ActionRequested: action}}
}

// Usage reports the tokens used so far, one entry a model.
func Usage(usage ...*pb.TokenUsage) *Result {
	return &Result{Payload: &pb.RunResult_UsageReported{UsageReported: &pb.UsageReported{Usage: usage}}}
}

// LogLine is a line for the run's log.
func LogLine(level pb.LogLevel, text string) *Result {
	return &Result{Payload: &pb.RunResult_Log{Log: &pb.LogLine{Level: level, Text: clean(text)}}}
}

// Completed ends the run well, with a reason such as "stop"; "silent" says that nothing was to be
// said. A runner that returns nil need not send it.
func Completed(finishReason string, usage ...*pb.TokenUsage) *Result {
	return &Result{Payload: &pb.RunResult_RunCompleted{RunCompleted: &pb.RunCompleted{
		FinishReason: finishReason, Usage: usage,
	}}}
}

// A Failure is the error that ends a run as failed.
type Failure struct {
	Code      string // under the plugin's own prefix, such as "desk.refused"
	Message   string // for people: no stack trace, path or secret
	Retryable bool   // whether the same event might succeed later
	Details   map[string]string
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }

func (f *Failure) result() *Result {
	details := make(map[string]string, len(f.Details))
	for key, value := range f.Details {
		details[clean(key)] = clean(value)
	}
	return &Result{Payload: &pb.RunResult_RunFailed{RunFailed: &pb.RunFailed{
		Code: clean(f.Code), Message: clean(f.Message), Retryable: f.Retryable, Details: details,
	}}}
}

func isTerminal(result *Result) bool {
	return result.GetRunCompleted() != nil || result.GetRunFailed() != nil
}

// clean replaces what is no UTF-8: a text from elsewhere must not lose the run.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
