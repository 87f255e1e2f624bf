/** Certificates: what a runner shows and whom it trusts. Files are read again when they change. */
import { readFileSync, statSync } from "node:fs";
import { createSecureContext } from "node:tls";

import * as grpc from "@grpc/grpc-js";

/** PEM files. */
export interface Tls {
  /** What the runner shows, to hosts that call it and to hosts that it calls. */
  certificate?: string | undefined;
  key?: string | undefined;
  /** Who signs hosts' certificates: only a host that shows one may call. */
  clientCa?: string | undefined;
  /** Who signs the certificate of a host's server; `system`: whom the machine trusts. */
  hostCa?: string | undefined;
}

const refreshMs = 1000;

/** What RUNMESH_TLS_CERT, _KEY, _CLIENT_CA and _HOST_CA say; undefined when none is set. */
export function tlsFromEnvironment(environment = process.env): Tls | undefined {
  const tls: Tls = {
    certificate: environment["RUNMESH_TLS_CERT"] || undefined,
    key: environment["RUNMESH_TLS_KEY"] || undefined,
    clientCa: environment["RUNMESH_TLS_CLIENT_CA"] || undefined,
    hostCa: environment["RUNMESH_TLS_HOST_CA"] || undefined,
  };
  return Object.values(tls).some(Boolean) ? tls : undefined;
}

/** Reads everything once, so that a file that cannot be used is told at the start. */
export function checkTls(tls: Tls | undefined): void {
  if (!tls) return;
  if (!tls.certificate !== !tls.key) throw new Error("TLS: certificate and key go together");
  if (tls.clientCa && !tls.certificate) {
    throw new Error("TLS: a client CA is for a runner that listens, which needs a certificate");
  }
  if (tls.key && statSync(tls.key).mode & 0o037) {
    throw new Error(`TLS: ${tls.key} may be read or written by others: chmod 600 it`);
  }
  for (const ca of [tls.clientCa, tls.hostCa]) createSecureContext({ ...pair(tls), ca: authority(ca) ?? undefined });
}

/** What a server of this process shows. */
export function serverCredentials(tls: Tls | undefined): grpc.ServerCredentials {
  return tls?.certificate ? new FreshCredentials(tls) : grpc.ServerCredentials.createInsecure();
}

/** Server credentials that follow their files: new connections get what is there. */
class FreshCredentials extends grpc.ServerCredentials {
  constructor(tls: Tls) {
    const context = () => ({ ...pair(tls), ca: authority(tls.clientCa) ?? undefined });
    super({ requestCert: tls.clientCa !== undefined }, context());
    const files = [tls.certificate, tls.key, tls.clientCa];
    let stamp = stampOf(files);
    const look = () => {
      const now = stampOf(files);
      if (now === stamp) return;
      try {
        this.updateSecureContextOptions(context());
        stamp = now;
      } catch (error) {
        console.error("TLS: what changed cannot be used yet:", (error as Error).message);
      }
    };
    setInterval(look, refreshMs).unref();
  }

  override _equals(other: grpc.ServerCredentials): boolean {
    return this === other;
  }
}

/** What a connection to a host shows and trusts; a unix socket has no TLS. */
export function hostCredentials(address: string, tls: Tls | undefined): grpc.ChannelCredentials {
  if (!tls?.hostCa || isUnix(address)) return grpc.credentials.createInsecure();
  const { key, cert } = pair(tls);
  return grpc.credentials.createSsl(authority(tls.hostCa), key ?? null, cert ?? null);
}

/** What changes when a file of those that connections to hosts are made with does. */
export function hostFilesStamp(tls: Tls | undefined): string {
  return stampOf([tls?.certificate, tls?.key, tls?.hostCa === "system" ? undefined : tls?.hostCa]);
}

function stampOf(files: (string | undefined)[]): string {
  return files.map((file) => (file ? (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0) : 0)).join(" ");
}

export function isUnix(address: string): boolean {
  return address.startsWith("unix:");
}

/** Whether an address can be reached from this machine alone. */
export function isPrivate(address: string): boolean {
  if (isUnix(address)) return true;
  const host = address.replace(/^(dns:\/\/\/|dns:|ipv4:|ipv6:)/, "").replace(/:\d+$/, "");
  return host === "localhost" || /^127\.\d+\.\d+\.\d+$/.test(host) || host === "[::1]";
}

function pair(tls: Tls): { key?: Buffer; cert?: Buffer } {
  return tls.key && tls.certificate ? { key: readFileSync(tls.key), cert: readFileSync(tls.certificate) } : {};
}

function authority(file: string | undefined): Buffer | null {
  return file && file !== "system" ? readFileSync(file) : null;
}
