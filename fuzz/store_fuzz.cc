// SPDX-License-Identifier: Apache-2.0
//
// A whole store whose files are damaged: it opens or is refused, and whatever a branch gives,
// tokens or KV, is what was appended to it. A repair ends, and what it leaves opens.
#include <memory>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "cairn/store.h"
#include "fuzz/input.h"
#include "fuzz/small_store.h"
#include "sim/world.h"

using namespace cairn;
using namespace cairn::fuzz;

namespace {

// Tables, an index, a log of two segments and their manifest.
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
  options.recovery = how % 3 == 2 ? cairn::Recovery::kSetAside : cairn::Recovery::kRefuse;
  auto store = Store::Open(kPath, options);
  if (!store.ok()) return 0;
  ReadAll(*store);
  static_cast<void>(store->Verify(VerifyLevel::kAll));
  if (!options.read_only) static_cast<void>(store->Compact());
  static_cast<void>(store->Close());
  if (options.recovery == cairn::Recovery::kRefuse) return 0;
  options.recovery = Recovery::kRefuse;
  store = Store::Open(kPath, options);
  if (store.ok()) ReadAll(*store);
  return 0;
}
