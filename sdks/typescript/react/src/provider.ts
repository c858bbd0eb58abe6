/** The client of a tree, and what its components share. */

import type { Noroshi } from '@noroshi/client'
import { createContext, createElement, useContext, useEffect, type ReactNode } from 'react'

const Context = createContext<Noroshi<any> | undefined>(undefined)

export interface NoroshiProviderProps {
  /** Create it outside of the component, or in state: a new client means a new connection. */
  client: Noroshi<any>
  /** `false`: the application calls `connect` and `close`. Default `true`: connected while the provider is mounted. */
  connect?: boolean | undefined
  children?: ReactNode
}

/** Makes a client available to the hooks below it. Nothing connects on a server. */
export function NoroshiProvider({ client, connect = true, children }: NoroshiProviderProps): ReactNode {
  useEffect(() => (connect ? sharedOf(client).connect() : undefined), [client, connect])
  return createElement(Context.Provider, { value: client }, children)
}

/** The client of the nearest `NoroshiProvider`. */
export function useNoroshi<Topics extends object = Record<string, unknown>>(): Noroshi<Topics> {
  const client = useContext(Context)
  if (!client) throw new Error('no <NoroshiProvider> above this component')
  return client as Noroshi<Topics>
}

/** What the components of a client share, for as long as the client lives. */
export class Shared {
  readonly #client: Noroshi<any>
  readonly #stores = new Map<string, unknown>()
  #connected = 0

  constructor(client: Noroshi<any>) {
    this.#client = client
  }

  /** Connects until the last function that it returned is called. */
  connect(): () => void {
    if (this.#connected++ === 0) this.#client.connect()
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      this.#connected--
      // A provider that is mounted again at once keeps the connection.
      setTimeout(() => this.#connected || this.#client.close())
    }
  }

  /** The store of this name; `create` makes the first one. */
  store<Store>(name: string, create: (remove: () => void) => Store): Store {
    let store = this.#stores.get(name) as Store | undefined
    if (!store) this.#stores.set(name, (store = create(() => this.#stores.delete(name))))
    return store
  }
}

const shared = new WeakMap<Noroshi<any>, Shared>()

export function sharedOf(client: Noroshi<any>): Shared {
  let one = shared.get(client)
  if (!one) shared.set(client, (one = new Shared(client)))
  return one
}
