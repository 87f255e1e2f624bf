//! Makes Rust of the contract's `.proto` files, without a `protoc`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

const PROTO: &str = "../../proto";
const FILES: [&str; 6] = [
    "runmesh/v1/attach.proto",
    "runmesh/v1/discovery.proto",
    "runmesh/v1/errors.proto",
    "runmesh/v1/gateway.proto",
    "runmesh/v1/host_api.proto",
    "runmesh/v1/run.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}/runmesh/v1");
    let descriptors = protox::compile(FILES, [PROTO])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("contract.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .generate_default_stubs(true)
        .compile_fds(descriptors)?;
    Ok(())
}
