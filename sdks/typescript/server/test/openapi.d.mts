export interface Operation {
  operationId: string
  requestBody?: { content: Record<string, { schema: object; example?: unknown; examples?: Record<string, { value: unknown }> }> }
  responses: Record<string, { content?: Record<string, { schema: object; example?: unknown }> }>
}

export const operations: Map<string, Operation>
export function operationOf(method: string, pathname: string): [string, Operation]
export function checkRequest(method: string, url: URL, headers: Headers, text: string | undefined): Operation
export function checkAnswer(operation: Operation, status: number, type: string, text: string): void
