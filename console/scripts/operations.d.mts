import type { Listed, Needed } from '../src/reference/document'

export function routesOf(source: string): Map<string, Needed>
export function operationsOf(documents: Record<string, { paths: object }>, router: string): Listed[]
export function sourceOf(operations: readonly Listed[]): string
