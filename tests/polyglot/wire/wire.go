// Reads messages of the contract and writes them again, as wire_programs.py says.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/runmesh/runmesh/sdk/go"
	_ "github.com/runmesh/runmesh/sdk/go/gen/runmesh/v1"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 3)
		answer, err := again(words[0], words[1], words[2])
		if err != nil {
			answer = "! " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(out, answer)
	}
}

func again(name, form, content string) (string, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return "", err
	}
	message := kind.New().Interface()
	if form == "json" {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal([]byte(content), message)
	} else if data, broken := hex.DecodeString(content); broken != nil {
		err = broken
	} else {
		err = proto.Unmarshal(data, message)
	}
	if err != nil {
		return "", err
	}
	data, err := proto.Marshal(message)
	if err != nil {
		return "", err
	}
	text, err := protojson.Marshal(message)
	return hex.EncodeToString(data) + " " + string(text), err
}
