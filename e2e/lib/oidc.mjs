/**
 * A real OpenID provider (npm `oidc-provider`), with people whose groups the test sets. It is at `localhost`, so for a browser it
 * is another site than the console at 127.0.0.1.
 */

import { generateKeyPairSync } from 'node:crypto'
import { createServer } from 'node:http'

import { Provider } from 'oidc-provider'

export const CLIENT = { id: 'noroshi', secret: 'a secret of the client: 100%' }

const signingKey = (kid) => ({ ...generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' }), kid, use: 'sig', alg: 'RS256' })

export class OpenIdProvider {
  /** `callbacks` are the addresses to which the provider returns people. */
  static async start(port, callbacks) {
    const own = new this()
    own.issuer = `http://localhost:${port}`
    /** By name: `{email, email_verified, name, groups}`. */
    own.accounts = {}
    const provider = new Provider(own.issuer, {
      clients: [{ client_id: CLIENT.id, client_secret: CLIENT.secret, redirect_uris: callbacks }],
      jwks: { keys: [signingKey('first')] },
      cookies: { keys: ['a key of the test'] },
      claims: { email: ['email', 'email_verified'], profile: ['name'], groups: ['groups'] },
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...own.accounts[id] }) }),
      // Nobody is asked for consent.
      async loadExistingGrant(ctx) {
        const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId })
        grant.addOIDCScope('openid email profile groups')
        await grant.save()
        return grant
      },
    })
    own.provider = provider
    const others = provider.callback()
    own.server = createServer((request, response) => {
      const work = request.url.startsWith('/interaction/') ? own.interact(request, response) : others(request, response)
      Promise.resolve(work).catch((error) => response.writeHead(500).end(String(error)))
    })
    await new Promise((resolve) => own.server.listen(port, '127.0.0.1', resolve))
    return own
  }

  /** The page of the provider: people name themselves, or cancel. */
  async interact(request, response) {
    const { prompt } = await this.provider.interactionDetails(request, response)
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' })
      response.end(`<!doctype html><html lang="en"><title>Provider</title><h1>Provider: ${prompt.name}</h1>
        <form method="post"><label>Account <input name="account"></label>
        <button>Continue</button> <button name="cancel" value="1">Cancel</button></form></html>`)
      return
    }
    let body = ''
    for await (const part of request) body += part
    const form = new URLSearchParams(body)
    const result = form.has('cancel')
      ? { error: 'access_denied', error_description: 'the person cancelled' }
      : { login: { accountId: form.get('account') } }
    await this.provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false })
  }

  async stop() {
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }
}

/** Flags of a node for a provider. */
export const flags = (name, issuer, settings) =>
  Object.entries({ issuer, client_id: CLIENT.id, client_secret: CLIENT.secret, ...settings }).flatMap(([key, value]) => ['--set', `console.oidc.${name}.${key}=${value}`])
