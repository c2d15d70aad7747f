// SPDX-License-Identifier: Apache-2.0
//
// Two processes, one store: one runs the model, the other one has the store, and rows of KV go
// through shared memory. Either may be killed at any time, and started again
// (docs/processes.md).
//
//   cairn-example-processes owner STORE SOCKET     has the store
//   cairn-example-processes worker SOCKET          runs the model
//   cairn-example-processes verify STORE           computes all of it again, and compares
#include <cairn/store.h>

#include <cstdio>
#include <cstring>

#include "tools/example/processes/owner.h"
#include "tools/example/processes/toy_model.h"
#include "tools/example/processes/worker.h"

namespace {

// Whether the branch has what the model computes, token for token and row for row.
bool IsRight(const cairn::Branch& branch, const std::string& name, uint64_t length) {
  cairn::KvBuffer kv(processes::Spec(), length);
  std::vector<cairn::TokenId> tokens(length);
  const cairn::Status restored = branch.Restore({.tokens = tokens, .into = kv.view()}).status();
  if (!restored.ok()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), restored.ToString().c_str());
    return false;
  }
  processes::ToyModel model(std::strtoull(name.substr(name.find(' ')).c_str(), nullptr, 10));
  for (uint64_t at = 0; at < length; ++at) model.Step();
  bool right = model.tokens() == tokens;
  for (uint64_t at = 0; at < length && right; ++at) {
    for (uint32_t layer = 0; layer < processes::kLayers; ++layer) {
      for (uint32_t plane = 0; plane < 2; ++plane) {
        for (uint32_t head = 0; head < processes::kHeads; ++head) {
          right =
              right && std::memcmp(kv.Row(0, layer, plane, head, at).data(),
                                   model.Row(layer, plane, head, at), processes::kRowBytes) == 0;
        }
      }
    }
  }
  if (!right) std::fprintf(stderr, "%s is wrong\n", name.c_str());
  return right;
}

// Reads beside the owner, if there is one.
int Verify(const std::string& path) {
  cairn::Options options;
  options.read_only = true;
  const auto store = cairn::Store::Open(path, options);
  if (!store.ok()) {
    std::fprintf(stderr, "verify: %s\n", store.status().ToString().c_str());
    return 1;
  }
  bool right = true;
  std::string cursor;
  do {
    const auto page = store->ListBranches("", "conversation ", 100, cursor);
    if (!page.ok()) return 1;
    for (const cairn::BranchInfo& info : page->branches) {
      const auto branch = store->FindBranch(info.name);
      const auto length = branch.ok() ? branch->length() : branch.status();
      if (!length.ok() || !IsRight(*branch, info.name, *length)) {
        right = false;
        continue;
      }
      std::printf("%s %llu\n", info.name.c_str(), static_cast<unsigned long long>(*length));
    }
    cursor = page->cursor;
  } while (!cursor.empty());
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "owner" && argc == 4) return processes::RunOwner(argv[2], argv[3]);
  if (role == "worker" && argc == 3) return processes::RunWorker(argv[2]);
  if (role == "verify" && argc == 3) return Verify(argv[2]);
  std::fprintf(stderr, "usage: %s owner STORE SOCKET | worker SOCKET | verify STORE\n", argv[0]);
  return 2;
}
