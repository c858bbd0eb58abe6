/** Errors of the API: problem documents (RFC 9457) with the request id that the server logged. */

export interface Problem {
  status: number
  code: string
  title: string
  detail: string
  field?: string | undefined
  requestId?: string | undefined
}

export class ApiError extends Error {
  readonly problem: Problem

  constructor(problem: Problem) {
    super(problem.detail || problem.title)
    this.name = 'ApiError'
    this.problem = problem
  }

  is(code: string): boolean {
    return this.problem.code === code
  }
}

/** The server did not answer at all. */
export class Unreachable extends Error {
  constructor(cause: unknown) {
    super('The server does not answer.', { cause })
    this.name = 'Unreachable'
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')

/** Reads the problem of an answer; a proxy in between may answer with something else than JSON. */
export async function problemOf(response: Response): Promise<Problem> {
  const raw: unknown = await response.json().catch(() => ({}))
  const body = (typeof raw === 'object' && raw !== null ? raw : {}) as Record<string, unknown>
  const title = text(body['title']) || response.statusText || `HTTP ${response.status}`
  return {
    status: response.status,
    code: text(body['code']) || `http_${response.status}`,
    title,
    detail: text(body['detail']) || title,
    field: text(body['field']) || undefined,
    requestId: text(body['request_id']) || response.headers.get('x-request-id') || undefined,
  }
}

export const isMissing = (error: unknown): boolean =>
  error instanceof ApiError && (error.problem.status === 404 || error.is('invalid_parameter'))
