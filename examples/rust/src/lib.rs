//! The runners `echo` and `desk`, and the process that serves them.

pub mod contract;
pub mod desk;
pub mod echo;
pub mod host;
pub mod listener;
pub mod manifests;
pub mod outbox;
pub mod run;
pub mod serve;
pub mod service;
