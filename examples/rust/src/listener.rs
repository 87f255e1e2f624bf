//! The address that hosts dial.

use std::fs::{Permissions, remove_file, set_permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener};

use crate::host::is_private;

/// Where the process listens.
pub enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// The file of a socket, which goes with it.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = remove_file(&self.0);
    }
}

impl Listener {
    /// Listens on `unix:/path` or `host:port`. There is no TLS, and so only this machine may dial.
    pub async fn bind(address: &str) -> Result<Self, Error> {
        match address.strip_prefix("unix:") {
            Some(path) => Self::bind_unix(path.into()),
            None if is_private(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            None => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{address:?} can be reached from other machines, and there is no TLS"),
            )),
        }
    }

    /// The address, with the port that was free where 0 was asked for.
    pub fn address(&self) -> Result<String, Error> {
        match self {
            Self::Unix(_, file) => Ok(format!("unix:{}", file.0.display())),
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
        }
    }

    fn bind_unix(path: PathBuf) -> Result<Self, Error> {
        // What a process that was killed has left behind; one that lives answers.
        if UnixStream::connect(&path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        let file = SocketFile(path);
        set_permissions(&file.0, Permissions::from_mode(0o600))?;
        Ok(Self::Unix(listener, file))
    }
}
