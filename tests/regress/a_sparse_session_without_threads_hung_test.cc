// SPDX-License-Identifier: Apache-2.0
//
// The bug: where the process may have no more threads, pages of a prefetch are read inside the
// call, and the reader waited for the lock that the call held. Method: a child that may make no
// thread.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "cairn/kv_buffer.h"
#include "cairn/sparse.h"
#include "tests/support/child.h"
#include "tests/support/status.h"

namespace cairn::testing {
namespace {

bool Prefetches() {
  alarm(30);  // Instead of for ever.
  const Gpu gpu = Gpu::Simulated(1).value();
  Options options;
  options.create_if_missing = true;
  options.gpus = {gpu};
  Store store = Store::Open(":memory:", options).value();
  ModelSpec model;
  model.identity.name = "m";
  model.groups = {LayerGroup::FullAttention(1, 1, 8, Dtype::kBf16)};
  Branch branch = store.CreateBranch(store.RegisterModel(model).value()).value();
  const KvBuffer kv(model, 8);
  const std::vector<TokenId> tokens(8);
  Delta delta;
  delta.tokens = tokens;
  delta.kv = kv.view();
  if (!branch.AppendSync(delta).ok()) return false;
  SparseArena arena =
      SparseArena::Make(store, gpu, {.pinned_bytes = 1 << 20, .device_bytes = 1 << 20}).value();
  SparseSession session = arena.Open(branch, {.slots = 2, .wanted_max = 1}).value();
  constexpr uid_t kNobody = 65534;
  const rlimit none{0, 0};
  if (setuid(kNobody) != 0 || setrlimit(RLIMIT_NPROC, &none) != 0) return false;
  const uint32_t piece = 0;
  const Status status = session.Prefetch({.pieces = &piece, .count = 1, .stride = 1});
  return Expect(status.ok(), status.ToString()) &&
         Expect(session.stats().pages_read == 1, "it was not read");
}

TEST(Regress, ASparseSessionWithoutThreadsHung) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a user whose threads can be counted";
  EXPECT_TRUE(InChild(Prefetches));
}

}  // namespace
}  // namespace cairn::testing
