// A runner of a later version: it says and asks what today's hosts do not know.
package main

import (
	"context"
	"embed"
	"errors"

	runmesh "github.com/runmesh/runmesh/sdk/go"
	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

//go:embed manifest.yaml components/*.yaml
var files embed.FS

func main() { runmesh.Main(files, map[string]runmesh.Runner{"later": later}) }

func later(ctx context.Context, run *runmesh.Run) error {
	const news = "of a later version"
	thing := &pb.LaterThing{LaterNumber: 7}
	switch run.Text() {
	case "result", "must understand":
		result := &runmesh.Result{Payload: &pb.RunResult_LaterResult{LaterResult: &pb.LaterThing{LaterNumber: 7}}}
		result.MustUnderstand = run.Text() == "must understand"
		return send(ctx, run, runmesh.Reply("before"), result, runmesh.Reply("after"))
	case "values":
		said := runmesh.Reply("hello")
		completed := said.GetMessageCompleted()
		completed.LaterText, completed.LaterThing = news, thing
		message := completed.Message
		message.Role, message.LaterText, message.LaterThing = pb.ChatRole_CHAT_ROLE_LATER, news, thing
		message.Parts = append(message.Parts, &pb.ContentPart{Content: &pb.ContentPart_LaterContent{LaterContent: thing}})
		line := runmesh.LogLine(pb.LogLevel_LOG_LEVEL_LATER, "a line")
		return send(ctx, run, said, line)
	case "call":
		_, err := run.Host.Foretell(ctx, &pb.ForetellRequest{LaterText: news})
		var refused *runmesh.HostError
		if !errors.As(err, &refused) {
			return err
		}
		return send(ctx, run, runmesh.Reply(refused.Method+": "+refused.Reason))
	case "fields":
		const scope, key = pb.StateScope_STATE_SCOPE_CONVERSATION, "later"
		request := &pb.SetStateRequest{Scope: scope, Key: key, ValueJson: `"kept"`, LaterText: news, LaterThing: thing}
		if _, err := run.Host.SetState(ctx, request); err != nil {
			return err
		}
		found, err := run.Host.GetState(ctx, &pb.GetStateRequest{Scope: scope, Key: key, LaterText: news})
		if err != nil {
			return err
		}
		return send(ctx, run, runmesh.Reply(found.Entry.ValueJson+found.Entry.LaterText))
	}
	return errors.New("not asked anything")
}

func send(ctx context.Context, run *runmesh.Run, results ...*runmesh.Result) error {
	for _, result := range results {
		if err := run.Send(ctx, result); err != nil {
			return err
		}
	}
	return nil
}
