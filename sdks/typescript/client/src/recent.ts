/**
 * The newest keys of a map. Two generations: deleting the oldest key of a `Map` one by one makes its iterators pass over all
 * that were deleted before. @internal
 */
export class Recent<Value> {
  #new = new Map<string, Value>()
  #old = new Map<string, Value>()

  /** Remembers so many keys at least, and twice as many at most. */
  constructor(private readonly min = 2_048) {}

  get(key: string): Value | undefined {
    return this.#new.get(key) ?? this.#old.get(key)
  }

  set(key: string, value: Value): void {
    if (this.#new.size >= this.min) {
      this.#old = this.#new
      this.#new = new Map()
    }
    this.#new.set(key, value)
  }

  delete(key: string): void {
    this.#new.delete(key)
    this.#old.delete(key)
  }
}
