"""The clients behind `ctx.host`, one noun a file. `runner_sdk.host` has what authors name."""
