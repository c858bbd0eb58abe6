/** A small renderer: the same calls as React's `createElement`, applied to the DOM in place. */

type Child = VNode | string | null | undefined | false | Child[]

export interface VNode {
  type: string
  props: Record<string, any>
  children: Child[]
}

export const h = (type: string, props: Record<string, any> | null, ...children: Child[]): VNode => ({ type, props: props ?? {}, children })

const SVG = 'http://www.w3.org/2000/svg'

interface Rendered {
  key: string
  props: Record<string, any>
}

const rendered = new WeakMap<Node, Rendered>()

function setProps(element: Element, old: Record<string, any>, props: Record<string, any>): void {
  for (const name of new Set([...Object.keys(old), ...Object.keys(props)])) {
    const value = props[name]
    if (name === 'key' || old[name] === value) continue
    if (/^on[A-Z]/.test(name)) {
      // The listener reads the newest function.
      const type = name === 'onBlur' ? 'focusout' : name.slice(2).toLowerCase()
      if (!(name in old)) element.addEventListener(type, (event) => rendered.get(element)!.props[name]?.(event))
    } else {
      const attribute = name === 'className' ? 'class' : name === 'viewBox' ? name : name.toLowerCase()
      if (value === undefined || value === null || value === false) element.removeAttribute(attribute)
      else element.setAttribute(attribute, value === true ? '' : String(value))
    }
  }
}

/** Makes the children of `parent` equal to `children`. An element keeps its identity, and its focus, by its key or its place. */
export function render(parent: Node, children: Child[]): void {
  const wanted: [key: string, child: VNode | string][] = []
  const collect = (all: Child[], prefix: string) =>
    all.forEach((child, index) => {
      if (Array.isArray(child)) return collect(child, `${prefix}${index}/`)
      if (child === null || child === undefined || child === false || child === '') return
      const own = typeof child === 'string' ? '#' : child.type
      wanted.push([`${prefix}${(child as VNode).props?.['key'] ?? index} ${own}`, child])
    })
  collect(children, '')

  const old = new Map([...parent.childNodes].map((node) => [rendered.get(node)?.key, node]))
  const nodes = wanted.map(([key, child]) => {
    const known = old.get(key)
    old.delete(key)
    if (typeof child === 'string') {
      const text = known ?? document.createTextNode(child)
      if (text.nodeValue !== child) text.nodeValue = child
      rendered.set(text, { key, props: {} })
      return text
    }
    const { type, props } = child
    const element = (known as Element | undefined) ?? (type === 'svg' || type === 'path' ? document.createElementNS(SVG, type) : document.createElement(type))
    const before = rendered.get(element)?.props ?? {}
    rendered.set(element, { key, props })
    setProps(element, before, props)
    render(element, child.children)
    return element
  })
  for (const node of old.values()) node.parentNode?.removeChild(node)
  nodes.forEach((node, index) => {
    const there = parent.childNodes[index]
    if (there !== node) parent.insertBefore(node, there ?? null)
  })
}
