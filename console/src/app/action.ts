/** Runs one change at a time and keeps its error for the form that shows it. */

import { useRef, useState } from 'preact/hooks'

import { toast, toastError } from '../ui/toast'

export interface Action<Arguments extends unknown[]> {
  /** False if the work failed, or if it runs already. */
  run(...values: Arguments): Promise<boolean>
  busy: boolean
  error: unknown
}

export function useAction<Arguments extends unknown[]>(
  work: (...values: Arguments) => Promise<unknown>,
): Action<Arguments> {
  const [state, setState] = useState<{ busy: boolean; error: unknown }>({ busy: false, error: undefined })
  const isBusy = useRef(false)
  async function run(...values: Arguments): Promise<boolean> {
    if (isBusy.current) return false
    isBusy.current = true
    setState({ busy: true, error: undefined })
    try {
      await work(...values)
      setState({ busy: false, error: undefined })
      return true
    } catch (error) {
      setState({ busy: false, error })
      return false
    } finally {
      isBusy.current = false
    }
  }
  return { run, ...state }
}

/** A change without a form: the outcome appears as a toast. */
export async function perform(work: () => Promise<unknown>, done: string): Promise<boolean> {
  try {
    await work()
    toast(done)
    return true
  } catch (error) {
    toastError(error)
    return false
  }
}
