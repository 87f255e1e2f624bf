// Dispatches a message to an agent, and prints what its run says as it comes:
//
//	RUNMESH_API_KEY=$(runmesh keys show) client 127.0.0.1:50051 AGENT TEXT
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: client ADDRESS AGENT TEXT")
	}
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+os.Getenv("RUNMESH_API_KEY"))
	if err := ask(ctx, pb.NewGatewayServiceClient(connection), os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, gateway pb.GatewayServiceClient, agent, text string) error {
	event := &pb.EventEnvelope{Type: "message.received", Input: &pb.EventInput{Text: &text}}
	stream, err := gateway.Dispatch(ctx, &pb.DispatchRequest{Event: event, AgentId: agent})
	if err != nil {
		return err
	}
	for streamed := false; ; {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, result := range response.GetResults().GetResults() {
			fmt.Print(result.GetMessageDelta().GetText())
			streamed = streamed || result.GetMessageDelta() != nil
			for _, part := range result.GetMessageCompleted().GetMessage().GetParts() {
				if !streamed {
					fmt.Print(part.GetText())
				}
			}
		}
		if run := response.GetEnded(); run != nil {
			fmt.Printf("\n%s %s %s\n", run.RunId, run.Status, run.GetFailure().GetMessage())
			return nil
		}
	}
}
