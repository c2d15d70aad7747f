// SPDX-License-Identifier: Apache-2.0
//
// The calls of compare.py in C++: appends of a given number of tokens to a new branch, and restores
// of them.
//
//   calls <tokens> <appends>      prints nanoseconds an append and a restore
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cairn/kv_buffer.h"
#include "cairn/store.h"

namespace {

using Clock = std::chrono::steady_clock;

double NsEach(Clock::time_point begin, int count) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / count;
}

template <typename T>
T Must(cairn::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

// Nanoseconds an append and a restore.
std::pair<double, double> Measure(int tokens, int appends) {
  auto store = Must(cairn::Store::Open(":memory:", {.create_if_missing = true}));
  cairn::ModelSpec spec;  // 16 KiB per token.
  spec.identity.name = "bench";
  spec.groups = {cairn::LayerGroup::FullAttention(16, 4, 64, cairn::Dtype::kBf16)};
  const cairn::ModelId model = Must(store.RegisterModel(spec));
  std::vector<std::vector<std::byte>> memory(32,
                                             std::vector<std::byte>(tokens * 512u, std::byte{7}));
  std::vector<std::byte*> tensors;
  for (auto& tensor : memory) tensors.push_back(tensor.data());
  const std::vector<cairn::TokenId> ids(tokens, 5);
  const auto view_at = [&](uint64_t position, cairn::KvUse use) {
    return Must(cairn::OwnedKvView::Make(spec,
                                         {{.tensors = tensors,
                                           .tokens = static_cast<uint64_t>(tokens),
                                           .position = position,
                                           .count = static_cast<uint64_t>(tokens)}},
                                         use));
  };
  cairn::Branch branch = Must(store.CreateBranch(model));
  const auto append = [&](int i) {
    const auto view = view_at(static_cast<uint64_t>(i) * tokens, cairn::KvUse::kAppend);
    Must(
        branch.AppendSync({.tokens = ids, .kv = view}, {.durability = cairn::Durability::kMemory}));
  };
  const auto restore = [&](int i) {
    const uint64_t begin = static_cast<uint64_t>(i) * tokens;
    const auto view = view_at(begin, cairn::KvUse::kRestore);
    Must(branch.Restore({.begin = begin, .end = begin + tokens, .into = view}));
  };
  auto begin = Clock::now();
  for (int i = 0; i < appends; ++i) append(i);
  const double append_ns = NsEach(begin, appends);
  begin = Clock::now();
  for (int i = 0; i < appends; ++i) restore(i);
  return {append_ns, NsEach(begin, appends)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: calls TOKENS APPENDS\n"), 2;
  const int tokens = std::atoi(argv[1]), appends = std::atoi(argv[2]);
  Measure(tokens, appends);  // Touches the process's memory first, as compare.py does.
  const auto [append, restore] = Measure(tokens, appends);
  std::printf("%.0f %.0f\n", append, restore);
}
