//! Dispatches a message to an agent, and prints what its run says as it comes:
//!
//!     RUNMESH_API_KEY=... client 127.0.0.1:7443 AGENT TEXT

use std::env;
use std::error::Error;
use std::io::{Write, stdout};

use runmesh_example::contract::content_part::Content;
use runmesh_example::contract::dispatch_response::Item;
use runmesh_example::contract::gateway_service_client::GatewayServiceClient;
use runmesh_example::contract::run_result::Payload;
use runmesh_example::contract::{DispatchRequest, EventEnvelope, EventInput};
use runmesh_example::host::endpoint;
use tonic::Request;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, agent, text] = arguments.as_slice() else {
        return Err("usage: client ADDRESS AGENT TEXT".into());
    };
    let channel = endpoint(address)?.connect().await?;
    ask(GatewayServiceClient::new(channel), agent, text).await
}

async fn ask(
    mut gateway: GatewayServiceClient<tonic::transport::Channel>,
    agent: &str,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let mut request = Request::new(DispatchRequest {
        agent_id: agent.to_owned(),
        event: Some(EventEnvelope {
            r#type: "message.received".to_owned(),
            input: Some(EventInput {
                text: Some(text.to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    let key = env::var("RUNMESH_API_KEY")?;
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {key}").parse()?);
    let mut responses = gateway.dispatch(request).await?.into_inner();
    let mut streamed = false;
    while let Some(response) = responses.message().await? {
        match response.item {
            Some(Item::Results(batch)) => {
                for payload in batch
                    .results
                    .into_iter()
                    .filter_map(|result| result.payload)
                {
                    streamed |= show(payload, streamed)?;
                }
            }
            Some(Item::Ended(run)) => {
                let failure = run.failure.as_ref().map_or("", |failure| &failure.message);
                println!("\n{} {} {failure}", run.run_id, run.status().as_str_name());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Prints a piece as it comes, and whole messages where no pieces come; says whether it was a piece.
fn show(payload: Payload, streamed: bool) -> std::io::Result<bool> {
    match payload {
        Payload::MessageDelta(delta) => {
            print!("{}", delta.text);
            stdout().flush()?;
            return Ok(true);
        }
        Payload::MessageCompleted(completed) if !streamed => {
            for part in completed
                .message
                .into_iter()
                .flat_map(|message| message.parts)
            {
                if let Some(Content::Text(text)) = part.content {
                    print!("{text}");
                }
            }
        }
        _ => {}
    }
    Ok(false)
}
