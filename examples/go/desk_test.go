package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
	"github.com/runmesh/runmesh/sdk/go/runmeshtest"
)

// host is as much of a host as a desk needs: one value of state, a transcript, and two tools.
type host struct {
	pb.UnimplementedHostAPIServiceServer
	value    string
	version  int64
	rivals   int // how many others write between this run's read and its write
	said     []string
	uploaded bytes.Buffer
}

func refused(code codes.Code, reason string) error {
	told, _ := status.New(code, "not so").WithDetails(&errdetails.ErrorInfo{Domain: "runmesh", Reason: reason})
	return told.Err()
}

func (h *host) GetState(context.Context, *pb.GetStateRequest) (*pb.GetStateResponse, error) {
	if h.version == 0 {
		return nil, refused(codes.NotFound, "NOT_FOUND")
	}
	return &pb.GetStateResponse{Entry: &pb.StateEntry{ValueJson: h.value, Version: h.version}}, nil
}

func (h *host) SetState(_ context.Context, request *pb.SetStateRequest) (*pb.SetStateResponse, error) {
	if h.rivals > 0 {
		h.rivals--
		h.version++
		h.value = fmt.Sprint(h.version)
	}
	if request.ExpectedVersion == nil || *request.ExpectedVersion != h.version {
		return nil, refused(codes.Aborted, "CONFLICT")
	}
	h.version++
	h.value = request.ValueJson
	return &pb.SetStateResponse{Version: h.version}, nil
}

// PageHistory gives pages of at most three, newest first, with a tool call between the messages.
func (h *host) PageHistory(_ context.Context, request *pb.PageHistoryRequest) (*pb.PageHistoryResponse, error) {
	var first int
	_, _ = fmt.Sscan(request.PageToken, &first)
	page := &pb.PageHistoryResponse{Items: []*pb.TranscriptItem{{Kind: pb.TranscriptKind_TRANSCRIPT_KIND_TOOL_CALL}}}
	for index, text := range slices.Backward(h.said) {
		role, place := pb.ChatRole_CHAT_ROLE_USER, len(h.said)-1-index
		if index%2 == 1 {
			role = pb.ChatRole_CHAT_ROLE_ASSISTANT
		}
		if place >= first && place < first+3 {
			page.Items = append(page.Items, &pb.TranscriptItem{
				Kind: pb.TranscriptKind_TRANSCRIPT_KIND_MESSAGE, Role: role, Text: &text,
			})
		}
	}
	if first+3 < len(h.said) {
		page.NextPageToken = fmt.Sprint(first + 3)
	}
	return page, nil
}

func (h *host) CreateArtifact(stream grpc.ClientStreamingServer[pb.CreateArtifactRequest, pb.CreateArtifactResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		h.uploaded.Write(request.GetChunk())
	}
	header, digest := first.GetHeader(), sha256.Sum256(h.uploaded.Bytes())
	if !bytes.Equal(header.Sha256, digest[:]) || header.GetSizeBytes() != int64(h.uploaded.Len()) {
		return refused(codes.InvalidArgument, "INVALID_ARGUMENT")
	}
	return stream.SendAndClose(&pb.CreateArtifactResponse{Artifact: &pb.ArtifactRef{ArtifactId: "a1", Name: header.Name}})
}

func (h *host) CallTool(_ context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	answer := &pb.CallToolResponse{Parts: []*pb.ContentPart{{Content: &pb.ContentPart_Text{Text: request.ParametersJson}}}}
	switch request.ToolName {
	case "lookup":
		return answer, nil
	case "broken":
		answer.IsError = true
		return answer, nil
	}
	return nil, refused(codes.NotFound, "NOT_FOUND")
}

func TestCountGoesOnWhereAnotherWasFaster(t *testing.T) {
	api := &host{rivals: 3}
	for _, want := range []string{"message 4 of this conversation", "message 5 of this conversation"} {
		if got := runmeshtest.Run(t, desk, runmeshtest.Message("count"), api).Text; got != want {
			t.Errorf("it said %q and not %q", got, want)
		}
	}
}

func TestRecallSaysTheLastFiveMessagesOldestFirst(t *testing.T) {
	api := &host{}
	if got := runmeshtest.Run(t, desk, runmeshtest.Message("recall"), api).Text; got != "nothing yet" {
		t.Errorf("it said %q", got)
	}
	api.said = []string{"a", "b", "c", "d", "e", "f"}
	want := "assistant: b\nuser: c\nassistant: d\nuser: e\nassistant: f"
	if got := runmeshtest.Run(t, desk, runmeshtest.Message("recall"), api).Text; got != want {
		t.Errorf("it said %q", got)
	}
}

func TestFileStoresTheWholeConversation(t *testing.T) {
	api := &host{said: []string{"a", "b", "c", "d", "e", "f", "天"}}
	outcome := runmeshtest.Run(t, desk, runmeshtest.Message("file notes of today.txt"), api)
	content := "user: a\nassistant: b\nuser: c\nassistant: d\nuser: e\nassistant: f\nuser: 天"
	digest := sha256.Sum256([]byte(content))
	want := fmt.Sprintf("notes of today.txt, %d bytes, sha256 %s", len(content), hex.EncodeToString(digest[:]))
	if outcome.Text != want || api.uploaded.String() != content {
		t.Errorf("it said %q and stored %q", outcome.Text, api.uploaded.String())
	}
	if ref := outcome.Results[0].GetArtifactCreated().GetRef(); ref.GetArtifactId() != "a1" {
		t.Errorf("it reported %v", outcome.Results[0])
	}
}

func TestToolIsCalledWithTheTextAsItIs(t *testing.T) {
	const parameters = `{"n": 9007199254740993, "f":1.0}`
	outcome := runmeshtest.Run(t, desk, runmeshtest.Message("tool lookup "+parameters), &host{})
	if outcome.Text != parameters || outcome.Results[0].GetToolCallStarted().GetParametersJson() != parameters {
		t.Errorf("it said %v", outcome.Results)
	}
	outcome = runmeshtest.Run(t, desk, runmeshtest.Message("tool broken"), &host{})
	if outcome.Text != "broken failed: {}" || outcome.Results[1].GetToolCallCompleted().GetErrorCode() == "" {
		t.Errorf("it said %v", outcome.Results)
	}
}

func TestRefusalEndsTheRunWithItsReason(t *testing.T) {
	failure := runmeshtest.Run(t, desk, runmeshtest.Message("tool other {}"), &host{}).Failure
	if failure.GetCode() != "desk.refused" || failure.Retryable ||
		failure.Details["method"] != "CallTool" || failure.Details["reason"] != "NOT_FOUND" {
		t.Errorf("it failed with %v", failure)
	}
}

func TestWaitSaysSoAtOnceAndThatItHas(t *testing.T) {
	outcome := runmeshtest.Run(t, desk, runmeshtest.Message("wait 0.01"))
	if outcome.Results[0].GetMessageDelta().GetText() != "waiting" || outcome.Text != "waited 0.01 s" {
		t.Errorf("it said %v", outcome.Results)
	}
}

func TestAnythingElseIsAnsweredWithWhatCanBeAsked(t *testing.T) {
	for _, text := range []string{"", "hello", "wait a moment", "wait NaN", "file", "tool", "counting"} {
		if got := runmeshtest.Run(t, desk, runmeshtest.Message(text)).Text; got != usage {
			t.Errorf("%q: it said %q", text, got)
		}
	}
}

func TestEchoSaysTheVeryTextInPieces(t *testing.T) {
	for _, text := range []string{"one  two\nthree ", "e\u0301 👩‍💻 天", strings.Repeat("x", 300_000), " "} {
		outcome := runmeshtest.Run(t, echo, runmeshtest.Message(text))
		var streamed string
		for _, result := range outcome.Results {
			streamed += result.GetMessageDelta().GetText()
		}
		if outcome.Text != text || streamed != text {
			t.Errorf("%.20q became %.20q, streamed as %.20q", text, outcome.Text, streamed)
		}
	}
	if got := slices.Collect(pieces("one  two\nthree ")); !slices.Equal(got, []string{"one  ", "two\n", "three "}) {
		t.Errorf("the pieces are %q", got)
	}
}

func TestEchoDoesAsItIsConfigured(t *testing.T) {
	for config, check := range map[string]func(*runmeshtest.Outcome) bool{
		`{"repeat": 3, "size": 2}`:        func(o *runmeshtest.Outcome) bool { return o.Text == "xxxxxx" && len(o.Results) == 5 },
		`{"repeat": 3, "message": false}`: func(o *runmeshtest.Outcome) bool { return len(o.Text) == 18 && len(o.Results) == 4 },
		`{"failure": "error"}`:            func(o *runmeshtest.Outcome) bool { return o.Failure.GetCode() == "echo.asked" && o.Failure.Retryable },
	} {
		request := runmeshtest.Message("hi")
		request.Context.ConfigJson = config
		if outcome := runmeshtest.Run(t, echo, request); !check(outcome) {
			t.Errorf("%s: %v", config, outcome.Results)
		}
	}
	if outcome := runmeshtest.Run(t, echo, runmeshtest.Message("")); outcome.Results[0].GetRunCompleted().GetFinishReason() != "silent" {
		t.Errorf("nothing: %v", outcome.Results)
	}
}
