// SPDX-License-Identifier: Apache-2.0
//
// A whole store whose files are damaged: it opens or is refused, and whatever a branch gives,
// tokens or KV, is what was appended to it. A repair ends, and what it leaves opens.
#include <memory>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/io/sim_world.h"
#include "cairn/store.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

constexpr uint32_t kRowBytes = 8;
constexpr char kPath[] = "store";

ModelSpec Model() {
  ModelSpec model;
  model.identity.name = "fuzz";
  model.groups.push_back(LayerGroup::FullAttention(1, 1, kRowBytes / 2, Dtype::kBf16));
  return model;
}

TokenId TokenAt(uint64_t branch, uint64_t position) {
  return static_cast<TokenId>(branch * 1000 + position);
}
std::byte ByteAt(uint64_t branch, uint64_t position, size_t plane, size_t byte) {
  return static_cast<std::byte>(branch * 31 + position * 7 + plane * 3 + byte);
}

// KV of positions [0, count), one plane behind the other.
struct Kv {
  explicit Kv(uint64_t in_count) : count(in_count), bytes(2 * in_count * kRowBytes) {
    for (size_t plane = 0; plane < 2; ++plane) {
      bases[plane] = bytes.data() + plane * count * kRowBytes;
      planes[plane] = {
          .layer_bases = {&bases[plane], 1}, .token_stride = kRowBytes, .head_stride = kRowBytes};
    }
  }
  std::byte& At(uint64_t position, size_t plane, size_t byte) {
    return bytes[(plane * count + position) * kRowBytes + byte];
  }
  template <typename Visit>
  void ForEach(uint64_t branch, const Visit& visit) {
    for (uint64_t position = 0; position < count; ++position) {
      for (size_t i = 0; i < 2 * kRowBytes; ++i) {
        visit(At(position, i / kRowBytes, i % kRowBytes),
              ByteAt(branch, position, i / kRowBytes, i % kRowBytes));
      }
    }
  }
  KvView View(uint64_t position) {
    group = {.position = position, .count = count - position, .planes = planes};
    for (size_t plane = 0; plane < 2; ++plane) {
      bases[plane] = bytes.data() + (plane * count + position) * kRowBytes;
    }
    return {.groups = {&group, 1}};
  }

  uint64_t count;
  std::vector<std::byte> bytes;
  std::byte* bases[2] = {};
  PlaneView planes[2] = {};
  GroupView group{};
};

Options StoreOptions() {
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 256 << 10;
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 1 << 20;
  options.executor_threads = 1;
  return options;
}

void Grow(Store& store, ModelId model, uint64_t id, uint64_t end) {
  auto branch = store.FindBranch(std::to_string(id));
  if (!branch.ok()) branch = store.CreateBranch(model, {.name = std::to_string(id)});
  CAIRN_CHECK(branch.ok());
  const uint64_t begin = *branch->length();
  std::vector<TokenId> tokens;
  for (uint64_t position = begin; position < end; ++position) {
    tokens.push_back(TokenAt(id, position));
  }
  Kv kv(end);
  kv.ForEach(id, [](std::byte& at, std::byte value) { at = value; });
  const KvView view = kv.View(begin);
  Delta delta;
  delta.tokens = tokens;
  delta.kv = &view;
  CAIRN_CHECK(branch->AppendSync(delta, {.durability = Durability::kPower}).ok());
}

// Tables, an index, a log of two segments and their checkpoint.
std::unique_ptr<io::SimDisk> MakeStore() {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = StoreOptions();
  options.world = std::make_shared<io::World>(machine.world());
  auto store = Store::Open(kPath, options);
  CAIRN_CHECK(store.ok());
  const auto model = store->RegisterModel(Model());
  CAIRN_CHECK(model.ok());
  for (uint64_t id = 1; id <= 3; ++id) Grow(*store, *model, id, 40 * id);
  CAIRN_CHECK(store->Compact().ok());
  for (uint64_t id = 1; id <= 4; ++id) Grow(*store, *model, id, 40 * id + 9);
  CAIRN_CHECK(store->Close().ok());
  return machine.disk->CrashClone(io::CrashChoice::KeepAll());
}

void ReadAll(Store& store) {
  const auto page = store.ListBranches("", "", 100);
  if (!page.ok()) return;
  for (const BranchInfo& info : page->branches) {
    CAIRN_CHECK(info.name.size() == 1 && info.name[0] >= '1' && info.name[0] <= '4');
    const uint64_t id = static_cast<uint64_t>(info.name[0] - '0');
    CAIRN_CHECK(info.length <= 40 * id + 9);
    const auto branch = store.GetBranch(info.id);
    if (!branch.ok()) continue;
    std::vector<TokenId> tokens(info.length);
    Kv kv(info.length);
    const KvView view = kv.View(0);
    RestoreRequest request;
    request.tokens = tokens;
    request.end = info.length;
    if (info.length != 0) request.into = &view;
    const auto restored = branch->Restore(request);
    if (!restored.ok()) continue;
    for (uint64_t position = 0; position < info.length; ++position) {
      CAIRN_CHECK(tokens[position] == TokenAt(id, position));
    }
    if (restored->kv_ends.empty() || restored->kv_ends[0] != info.length) continue;
    kv.ForEach(id, [](const std::byte& at, std::byte value) { CAIRN_CHECK(at == value); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::unique_ptr<io::SimDisk> whole = MakeStore();
  fuzz::Input input(data, bytes);
  const uint8_t how = input.Take<uint8_t>();
  const io::SimWorld machine = io::CrashWorld(*whole, io::CrashChoice::KeepAll());
  fuzz::Damage(*machine.disk, input);
  Options options = StoreOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.create_if_missing = false;
  options.read_only = how % 3 == 0;
  options.salvage = how % 3 == 2;
  auto store = Store::Open(kPath, options);
  if (!store.ok()) return 0;
  ReadAll(*store);
  static_cast<void>(store->Verify(VerifyLevel::kAll));
  if (!options.read_only) static_cast<void>(store->Compact());
  static_cast<void>(store->Close());
  if (!options.salvage) return 0;
  options.salvage = false;
  store = Store::Open(kPath, options);
  if (store.ok()) ReadAll(*store);
  return 0;
}
