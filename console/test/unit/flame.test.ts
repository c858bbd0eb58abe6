import { expect, test } from 'vitest'

import { layout, matched, originOf, short, sums, treeOf } from '../../src/pages/flame-tree'

const profile = {
  names: ['shard', 'noroshi_gateway::shard::run', 'std::io::write', 'main'],
  frames: [
    { caller: null, name: 0, total: 60, own: 0 },
    { caller: 0, name: 1, total: 60, own: 10 },
    { caller: 1, name: 1, total: 20, own: 20 },
    { caller: 1, name: 2, total: 30, own: 30 },
    { caller: null, name: 3, total: 40, own: 40 },
  ],
  sum: 100,
}
const root = treeOf(profile, 'all')

test('the largest call comes first', () => {
  expect(root.calls.map(({ name }) => name)).toEqual(['shard', 'main'])
  expect(root.calls[0]?.calls[0]?.calls.map(({ name }) => name)).toEqual(['std::io::write', 'noroshi_gateway::shard::run'])
})

test('a box starts where its caller starts and is as wide as its share', () => {
  const boxes = layout(root, 0).map(({ call, row, from, width }) => [call.id, row, from, width])
  expect(boxes).toEqual([[-1, 0, 0, 1], [0, 1, 0, 0.6], [4, 1, 0.6, 0.4], [1, 2, 0, 0.6], [3, 3, 0, 0.3], [2, 3, 0.3, 0.2]])
})

test('an enlarged frame is as wide as the graph, below its callers', () => {
  const top = root.calls[0]?.calls[0]
  expect(top && layout(top, 0.4).map(({ call, row, width }) => [call.id, row, width])).toEqual([[-1, 0, 1], [0, 1, 1], [1, 2, 1], [3, 3, 0.5]])
})

test('a function that calls itself counts once', () => {
  expect(sums(root)).toEqual([
    { name: 'main', own: 40, total: 40 },
    { name: 'noroshi_gateway::shard::run', own: 30, total: 60 },
    { name: 'std::io::write', own: 30, total: 30 },
    { name: 'shard', own: 0, total: 60 },
  ])
})

test('matches within matches count once', () => {
  expect(matched(root, 'SHARD')).toBe(60)
  expect(matched(root, 'write')).toBe(30)
  expect(matched(root, 'nothing')).toBe(0)
})

test.each([
  ['noroshi_gateway::shard::delivery::write', 'delivery::write'],
  ['core::ops::function::FnOnce<a::b::c>::call', 'function::FnOnce<a::b::c>::call'],
  ['write', 'write'],
  ['<a::B as c::D>::e', '<a::B as c::D>::e'],
])('the short name of %s', (name, expected) => expect(short(name)).toBe(expected))

test('code of Noroshi, of the runtime and of others', () => {
  expect(originOf('noroshi_store::sqlite::writer::run')).toBe('own')
  expect(originOf('<alloc::boxed::Box<dyn noroshi_api::X> as core::ops::Fn>::call')).toBe('own')
  expect(originOf('tokio::runtime::task::poll')).toBe('runtime')
  expect(originOf('epoll_wait')).toBe('other')
})

test('a profile without samples has no calls', () => {
  expect(treeOf({ names: [], frames: [], sum: 0 }, 'all').calls).toEqual([])
})
