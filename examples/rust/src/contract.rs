//! `runmesh.v1`, as the build script makes it of the `.proto` files.
#![allow(clippy::all)]

tonic::include_proto!("runmesh.v1");

/// What server reflection tells of the contract.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("contract");
