#!/usr/bin/env bash
# Writes the contract's code in another language: language_stubs.sh LANGUAGE [FOLDER [PATH]]
# With a path, such as proto/runmesh/v1, only of the files there.
#
# Each language's generators come from that language's own registry, by its own tool, once, into
# build/stub-tools. Versions are pinned here, those of a generator and its runtime together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly language=${1:?which language: go, typescript, java, rust, cpp or csharp}
readonly destination=${2:-build/stubs/$language}
readonly tools=$PWD/build/stub-tools/$language

readonly protoc_gen_go=1.36.12 protoc_gen_go_grpc=1.6.2
readonly protoc_gen_es=2.17.0 grpc_health_check=2.1.0 grpc_reflection=1.0.4
readonly protoc=4.36.2 protoc_gen_grpc_java=1.83.1
readonly protoc_gen_prost=0.5.0 protoc_gen_tonic=0.5.0

need() {
    command -v "$1" >/dev/null && return
    echo "Stubs for $language need $1, which is not on PATH: $2" >&2
    exit 1
}

# Maven's names for this machine, as its protoc artifacts have them.
classifier() {
    local system machine
    case $(uname -s) in
        Linux) system=linux ;;
        Darwin) system=osx ;;
        *) echo "There is no protoc for $(uname -s) here." >&2; exit 1 ;;
    esac
    case $(uname -m) in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch_64 ;;
        *) echo "There is no protoc for $(uname -m) here." >&2; exit 1 ;;
    esac
    echo "$system-$machine"
}

# maven_tool GROUP ARTIFACT VERSION NAME: a program that is published as a Maven artifact.
maven_tool() {
    need mvn "install Maven (on Debian and Ubuntu: apt-get install maven)"
    # Maven paints even what it does not say.
    local said
    said=$(mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact="$1:$2:$3:exe:$(classifier)" -DoutputDirectory="$tools/download" 2>&1) || {
        echo "$said" >&2
        exit 1
    }
    install -m 755 "$tools/download/$2-$3-$(classifier).exe" "$tools/$4"
}

install_tools() {
    case $language in
        go)
            need go "install Go"
            GOBIN=$tools go install "google.golang.org/protobuf/cmd/protoc-gen-go@v$protoc_gen_go"
            GOBIN=$tools go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v$protoc_gen_go_grpc"
            ;;
        typescript)
            need npm "install Node.js"
            npm install --silent --no-audit --no-fund --no-save --prefix "$tools" \
                "@bufbuild/protoc-gen-es@$protoc_gen_es" \
                "grpc-health-check@$grpc_health_check" "@grpc/reflection@$grpc_reflection" >&2
            ;;
        java)
            maven_tool com.google.protobuf protoc "$protoc" protoc
            maven_tool io.grpc protoc-gen-grpc-java "$protoc_gen_grpc_java" protoc-gen-grpc-java
            ;;
        rust)
            need cargo "install Rust"
            cargo install --quiet --locked --root "$tools" \
                "protoc-gen-prost@$protoc_gen_prost" "protoc-gen-tonic@$protoc_gen_tonic"
            ;;
        cpp)
            maven_tool com.google.protobuf protoc "$protoc" protoc
            need grpc_cpp_plugin "install it (on Debian and Ubuntu: apt-get install protobuf-compiler-grpc)"
            ;;
        csharp)
            maven_tool com.google.protobuf protoc "$protoc" protoc
            ;;
    esac
}

if [[ ! -f dev/stubs/$language.yaml ]]; then
    echo "There are no stubs for '$language': LANG is one of go, typescript, java, rust, cpp, csharp." >&2
    exit 2
fi

# What an interrupted installation left behind is not worth trusting.
stamp=$tools/.complete
if [[ ! -f $stamp || "$(<"$stamp")" != "$(cksum <"${BASH_SOURCE[0]}")" ]]; then
    echo "Installing the generators for $language ..." >&2
    rm -rf "$tools"
    mkdir -p "$tools"
    install_tools
    cksum <"${BASH_SOURCE[0]}" >"$stamp"
fi

# What every gRPC process serves and sends beside its own services: no package has it for protobuf-es.
standard_typescript() {
    local modules=$tools/node_modules standard=$tools/standard google
    google=$(.venv/bin/python -c 'import google.rpc.status_pb2 as found; print(found.__file__)')
    rm -rf "$standard"
    mkdir -p "$standard/google/rpc"
    cp "${google%/*}"/{status,error_details}.proto "$standard/google/rpc"
    cp -r "$modules/@grpc/reflection/build/proto/grpc" "$standard"
    cp -r "$modules/grpc-health-check/proto/health" "$standard/grpc"
    .venv/bin/buf build "$standard" --exclude-source-info --output "$standard.binpb"
    .venv/bin/buf generate "$standard.binpb" --template dev/stubs/typescript.yaml --output "$destination"
}

.venv/bin/buf generate --template "dev/stubs/$language.yaml" --output "$destination" ${3:+--path "$3"}
[[ $language != typescript ]] || standard_typescript
if [[ $language == csharp ]]; then
    if command -v grpc_csharp_plugin >/dev/null; then
        .venv/bin/buf generate --template dev/stubs/csharp-services.yaml --output "$destination"
    else
        echo "Messages only: for the services put grpc_csharp_plugin on PATH, or let the package Grpc.Tools of" \
            "your project generate from proto/ itself." >&2
    fi
fi
echo "The contract in $language: $destination"
