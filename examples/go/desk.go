package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	runmesh "github.com/runmesh/runmesh/sdk/go"
	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

const (
	usage = "Ask me to: count, recall, file NAME, tool NAME JSON, or wait SECONDS."
	// How many messages `recall` recalls.
	recalled = 5
)

// desk does what the first word of a message asks for, each with a call of its host.
func desk(ctx context.Context, run *runmesh.Run) error {
	word, rest := cut(run.Text())
	var err error
	switch {
	case word == "count":
		err = count(ctx, run)
	case word == "recall":
		err = recall(ctx, run)
	case word == "file" && rest != "":
		err = file(ctx, run, rest)
	case word == "tool" && rest != "":
		err = tool(ctx, run, rest)
	case word == "wait" && rest != "":
		err = wait(ctx, run, rest)
	default:
		err = say(ctx, run, usage)
	}
	var refused *runmesh.HostError
	if errors.As(err, &refused) && ctx.Err() == nil {
		return &runmesh.Failure{
			Code: "desk.refused", Message: "the host refused: " + refused.Message, Retryable: refused.Retryable,
			Details: map[string]string{"method": refused.Method, "reason": refused.Reason},
		}
	}
	return err
}

// count adds one to a number in the conversation's state, again where another run was faster.
func count(ctx context.Context, run *runmesh.Run) error {
	const scope, key = pb.StateScope_STATE_SCOPE_CONVERSATION, "count"
	for {
		var number, version int64
		found, err := run.Host.GetState(ctx, &pb.GetStateRequest{Scope: scope, Key: key})
		switch {
		case isReason(err, "NOT_FOUND"): // the first message: version 0 is that of no value
		case err != nil:
			return err
		default:
			version = found.Entry.Version
			if err := json.Unmarshal([]byte(found.Entry.ValueJson), &number); err != nil {
				return err
			}
		}
		number++
		_, err = run.Host.SetState(ctx, &pb.SetStateRequest{
			Scope: scope, Key: key, ValueJson: strconv.FormatInt(number, 10), ExpectedVersion: &version,
		})
		if isReason(err, "CONFLICT") {
			continue
		}
		if err != nil {
			return err
		}
		return say(ctx, run, fmt.Sprintf("message %d of this conversation", number))
	}
}

func recall(ctx context.Context, run *runmesh.Run) error {
	lines, err := transcript(ctx, run, recalled)
	if err != nil {
		return err
	}
	return say(ctx, run, lines)
}

// file stores the conversation so far as an artifact.
func file(ctx context.Context, run *runmesh.Run, name string) error {
	lines, err := transcript(ctx, run, 0)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(lines))
	header := &pb.ArtifactHeader{
		Type: "file", MimeType: "text/plain; charset=utf-8", Name: name,
		SizeBytes: proto.Int64(int64(len(lines))), Sha256: digest[:],
	}
	ref, err := run.Host.Upload(ctx, header, strings.NewReader(lines))
	if err != nil {
		return err
	}
	if err := run.Send(ctx, runmesh.Artifact(ref)); err != nil {
		return err
	}
	return say(ctx, run, fmt.Sprintf("%s, %d bytes, sha256 %x", name, len(lines), digest))
}

// transcript writes the conversation's last messages, or all of them for 0, oldest first.
func transcript(ctx context.Context, run *runmesh.Run, most int) (string, error) {
	var lines []string
	for item, err := range run.Host.History(ctx, &pb.PageHistoryRequest{PageSize: int32(most)}) {
		if err != nil {
			return "", err
		}
		if item.Kind != pb.TranscriptKind_TRANSCRIPT_KIND_MESSAGE {
			continue
		}
		role := strings.ToLower(strings.TrimPrefix(item.Role.String(), "CHAT_ROLE_"))
		lines = append(lines, role+": "+item.GetText())
		if len(lines) == most {
			break
		}
	}
	if len(lines) == 0 {
		return "nothing yet", nil
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n"), nil
}

// tool calls a tool with a text of JSON, as it is.
func tool(ctx context.Context, run *runmesh.Run, rest string) error {
	const callID = "desk-1"
	name, parameters := cut(rest)
	parameters = cmp.Or(parameters, "{}")
	if err := run.Send(ctx, runmesh.ToolStarted(callID, name, parameters)); err != nil {
		return err
	}
	answer, err := run.Host.CallTool(ctx, &pb.CallToolRequest{ToolName: name, ParametersJson: parameters, CallId: callID})
	if err != nil {
		return err
	}
	text := toolText(answer)
	if answer.IsError {
		if err := run.Send(ctx, runmesh.ToolFailed(callID, name, "failed", text)); err != nil {
			return err
		}
		return say(ctx, run, fmt.Sprintf("%s failed: %s", name, text))
	}
	if err := run.Send(ctx, runmesh.ToolCompleted(callID, name, text)); err != nil {
		return err
	}
	return say(ctx, run, text)
}

// toolText is what a tool answered, as text.
func toolText(answer *pb.CallToolResponse) string {
	var texts []string
	for _, part := range answer.Parts {
		if text := part.GetText(); text != "" {
			texts = append(texts, text)
		}
	}
	return cmp.Or(strings.Join(texts, "\n"), answer.GetResultJson(), answer.Preview, "(no text)")
}

// wait says at once that it waits, and after a time that it has.
func wait(ctx context.Context, run *runmesh.Run, text string) error {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds < 1e6) {
		return say(ctx, run, usage)
	}
	if err := run.Send(ctx, runmesh.Delta("waiting")); err != nil {
		return err
	}
	if err := sleep(ctx, seconds); err != nil {
		return err
	}
	return say(ctx, run, fmt.Sprintf("waited %s s", text))
}

func say(ctx context.Context, run *runmesh.Run, text string) error {
	return run.Send(ctx, runmesh.Reply(text))
}

// cut takes the first word off a text.
func cut(text string) (word, rest string) {
	word, rest, _ = strings.Cut(strings.TrimSpace(text), " ")
	return word, strings.TrimSpace(rest)
}

func isReason(err error, reason string) bool {
	var refused *runmesh.HostError
	return errors.As(err, &refused) && refused.Reason == reason
}
