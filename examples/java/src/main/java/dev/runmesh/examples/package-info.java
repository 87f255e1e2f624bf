/**
 * The plugin examples/java: the runners echo and desk in one process, made from the contract alone.
 *
 * <pre>
 * host --- RunService.Run ---&gt; RunService: accepts or refuses ---&gt; Run: a thread for each
 *      &lt;--- results ---------- Run.send: numbered, waits while the reader is slow
 *      &lt;--- HostAPIService --- Host: both tokens, trace and deadline of the run
 * </pre>
 *
 * <p>A run is stopped in one way, whatever the reason: its {@link io.grpc.Context} is cancelled.
 * That cancels the calls that it has open to its host and interrupts its thread.
 */
package dev.runmesh.examples;
