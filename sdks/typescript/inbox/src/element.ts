/** `<noroshi-inbox>`: the bell as a custom element. */

import type { Item, Noroshi } from '@noroshi/client'
import { Bell } from './bell.js'
import { h, render } from './dom.js'
import style from './style.css?raw'
import type { Texts } from './texts.js'
import { view, type ViewOptions } from './view.js'

// A server that renders the page has no elements.
const Base: typeof HTMLElement = globalThis.HTMLElement ?? (class {} as any)

let sheet: CSSStyleSheet | undefined

/** The event `noroshi-select`: call `preventDefault` to open the item in another way than its link. */
export type SelectEvent = CustomEvent<{ item: Item }>

/**
 * The bell. Set `client`; the attributes are `theme` (`light`, `dark`, `auto`), `locale`, `category`, `limit` and `align`
 * (`start`, `end`).
 */
export class NoroshiInbox extends Base {
  static readonly observedAttributes = ['theme', 'locale', 'align', 'category', 'limit']
  #client: Noroshi<any> | undefined
  #texts: Partial<Texts> | undefined
  #bell: Bell | undefined
  #off: (() => void) | undefined

  /** The client whose inbox is shown. Without one the element is empty. */
  get client(): Noroshi<any> | undefined {
    return this.#client
  }

  set client(client: Noroshi<any> | undefined) {
    if (client === this.#client) return
    this.#client = client
    this.#start()
  }

  /** Replace texts of the locale. */
  get texts(): Partial<Texts> | undefined {
    return this.#texts
  }

  set texts(texts: Partial<Texts> | undefined) {
    this.#texts = texts
    this.#render()
  }

  /** Opens the panel. */
  show(): void {
    this.#bell?.open()
  }

  /** Closes the panel. */
  hide(): void {
    this.#bell?.close()
  }

  /** @internal */
  connectedCallback(): void {
    // Set before the element was defined.
    for (const name of ['client', 'texts']) {
      const own = Object.getOwnPropertyDescriptor(this, name)
      if (own && delete (this as any)[name]) (this as any)[name] = own.value
    }
    this.#start()
  }

  /** @internal */
  disconnectedCallback(): void {
    this.#stop()
  }

  /** @internal */
  attributeChangedCallback(name: string, before: string | null, after: string | null): void {
    if (before === after) return
    if (name === 'category' || name === 'limit') this.#start()
    else this.#render()
  }

  #start(): void {
    this.#stop()
    if (!this.isConnected || !this.#client) return
    if (!this.shadowRoot) {
      if (!sheet) (sheet = new CSSStyleSheet()).replaceSync(`:host{display:inline-block}:host([hidden]){display:none}${style}`)
      this.attachShadow({ mode: 'open' }).adoptedStyleSheets = [sheet]
    }
    const limit = Number(this.getAttribute('limit'))
    const bell = (this.#bell = new Bell(this.#client, { category: this.getAttribute('category') || undefined, limit: limit > 0 ? limit : undefined }))
    bell.onSelect = (item, event) => {
      const select: SelectEvent = new CustomEvent('noroshi-select', { detail: { item }, bubbles: true, composed: true, cancelable: true })
      if (!this.dispatchEvent(select)) event.preventDefault()
    }
    this.#off = bell.subscribe(() => this.#render())
    this.#render()
    bell.attach(this.shadowRoot!.firstElementChild as HTMLElement)
  }

  #stop(): void {
    this.#off?.()
    this.#off = undefined
    this.#bell?.attach(null)
    this.#bell = undefined
    if (this.shadowRoot) render(this.shadowRoot, [])
  }

  #render(): void {
    const bell = this.#bell
    if (!bell) return
    const options: ViewOptions = {
      theme: (this.getAttribute('theme') as ViewOptions['theme']) ?? undefined,
      align: (this.getAttribute('align') as ViewOptions['align']) ?? undefined,
      locale: this.getAttribute('locale') ?? (this.closest<HTMLElement>('[lang]')?.lang || undefined),
      texts: this.#texts,
    }
    render(this.shadowRoot!, [view(h, bell, bell.getSnapshot(), options, { id: 'noroshi-' })])
    bell.rendered()
  }
}

/** Defines the element, unless it is defined. */
export function define(): void {
  if (!customElements.get('noroshi-inbox')) customElements.define('noroshi-inbox', NoroshiInbox)
}
