/** Certificates from the `openssl` command, because node:crypto cannot issue them. */

import { execFileSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'

/** Writes `cert` and `key` (PEM files) for 127.0.0.1 and returns the certificate. */
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

/** Writes a CA (`ca`) and a server certificate for this machine (`cert`, `key`; PEM files). */
export function issueFromAuthority(ca, cert, key) {
  const caKey = `${ca}.key`
  const openssl = (...args) => execFileSync('openssl', args, { stdio: 'pipe' })
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  openssl('req', '-x509', ...made, '-days', '2', '-subj', '/CN=Tests', '-keyout', caKey, '-out', ca)
  openssl('req', '-new', ...made, '-subj', '/CN=localhost', '-keyout', key, '-out', `${cert}.csr`)
  writeFileSync(`${cert}.ext`, 'basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n')
  openssl('x509', '-req', '-in', `${cert}.csr`, '-CA', ca, '-CAkey', caKey, '-days', '2', '-extfile', `${cert}.ext`, '-out', cert)
}
