/** Self-signed certificates by the `openssl` command: node:crypto can sign, but not issue. */

import { execFileSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** Writes `cert` and `key` (PEM files) for 127.0.0.1 and answers the certificate. */
export function issue(cert, key, commonName) {
  execFileSync(
    'openssl',
    // prettier-ignore
    ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
      '-subj', `/CN=${commonName}`, '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost', '-keyout', key, '-out', cert],
    { stdio: 'pipe' },
  )
  return new X509Certificate(readFileSync(cert))
}
