// SPDX-License-Identifier: Apache-2.0
//
// The tree's records in the index, changed at will: reading them ends, with the tree or with a
// Status, and the check of all of them ends with what it found.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/io/memory_file_system.h"
#include "engine/manifest/manifest.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/records/tree_loader.h"
#include "engine/tree/records/tree_records.h"
#include "fuzz/input.h"
#include "fuzz/small_store.h"
#include "sim/world.h"

using namespace cairn;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

sstable::LsmOptions IndexOptions(io::FileSystem& files, sstable::BlockCache& cache,
                                 sstable::TableCounters& counters, const StoreId& store) {
  sstable::LsmOptions options;
  options.tables.files = &files;
  options.tables.directory = "store/tables";
  options.tables.store = store;
  options.tables.cache = &cache;
  options.tables.counters = &counters;
  return options;
}

// Records of most kinds: forks, states, spans, policies, times to live, rewinds, seals.
void Live(Store& store) {
  const auto model = store.RegisterModel(fuzz::Model());
  CAIRN_CHECK(model.ok());
  CAIRN_CHECK(store.SetNamespace("tenant", {.max_bytes = 1 << 20, .evict = Evict::kKv}).ok());
  for (uint64_t id = 1; id <= 3; ++id) fuzz::Grow(store, *model, id, 20 * id);
  const auto first = store.FindBranch("1");
  CAIRN_CHECK(first.ok());
  auto fork = first->ForkAt(7, {.name = "fork", .ns = "tenant", .keep = {.priority = 3}});
  auto unnamed = first->ForkAt(12, {.keep = {.ttl_ns = 1'000'000'000'000}});
  CAIRN_CHECK(fork.ok() && unnamed.ok());
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5};
  const SamplerState sampler{.generator = GeneratorKind::kPhilox, .philox_seed = 7};
  const AppMetadata metadata{.content_type = "text/plain", .bytes = {std::byte{1}}};
  const std::vector<ContentSpan> spans = {{.begin = 8, .end = 10, .hash = {1, 2}, .atomic = true}};
  CAIRN_CHECK(
      fork->AppendSync(
              {.tokens = tokens, .sampler = &sampler, .metadata = &metadata, .spans = spans})
          .ok());
  CAIRN_CHECK(unnamed->AppendSync({.tokens = tokens}).ok());
  CAIRN_CHECK(store.Compact().ok());
  for (uint64_t id = 1; id <= 4; ++id) fuzz::Grow(store, *model, id, 20 * id + 9);
  CAIRN_CHECK(store.FindBranch("3")->Rewind(50).ok());
  CAIRN_CHECK(store.Close().ok());
}

Pairs MakePairs() {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = fuzz::StoreOptions();
  options.replay_records_max = 1;  // The index has all of it.
  options.world = std::make_shared<io::World>(machine.world());
  {
    auto store = Store::Open("store", options);
    CAIRN_CHECK(store.ok());
    Live(*store);
  }
  const auto manifest = engine::ReadManifest(*machine.disk, "store");
  CAIRN_CHECK(manifest.ok());
  sstable::BlockCache cache(1 << 20);
  sstable::TableCounters counters;
  const auto index = sstable::LsmIndex::Open(
      IndexOptions(*machine.disk, cache, counters, manifest->store), manifest->index);
  CAIRN_CHECK(index.ok());
  Pairs pairs;
  const auto scan = (*index)->NewScan();
  std::map<char, int> letters;
  for (scan->Seek(""); scan->valid(); scan->Next()) {
    pairs.emplace_back(scan->key(), *scan->value());
    ++letters[scan->key()[0]];
  }
  CAIRN_CHECK(scan->status().ok());
  for (const char letter : {'B', 'C', 'H', 'M', 'N', 'P', 'R', 'T', 'U', 'X'}) {
    CAIRN_CHECK(letters[letter] > 0);
  }
  return pairs;
}

// One step for each six bytes of the input.
void Change(Pairs& pairs, fuzz::Input& input) {
  constexpr size_t kStepsMax = 32;
  for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) {
    const uint8_t kind = input.Take<uint8_t>();
    auto& [key, value] = pairs[input.Take<uint8_t>() % pairs.size()];
    const uint16_t at = input.Take<uint16_t>();
    const auto with = static_cast<char>(input.Take<uint8_t>());
    switch (kind % 8) {
      case 0: key.resize(1 + at % key.size()); break;
      case 1: key.push_back(with); break;
      case 2: key[at % key.size()] = static_cast<char>(key[at % key.size()] ^ with); break;
      case 3: value.resize(at % (value.size() + 1)); break;
      case 4: value = pairs[at % pairs.size()].second; break;
      default:
        if (!value.empty()) {
          value[at % value.size()] = static_cast<char>(value[at % value.size()] ^ with);
        }
        break;
    }
  }
}

void CheckStatus(const Status& status) {
  CAIRN_CHECK(status.ok() || status.code() == StatusCode::kCorruption ||
              status.code() == StatusCode::kUnsupportedFormat);
}

// As a store does that is opened, asked for what it has, and looks for what to evict and to drop.
void ReadAll(const std::shared_ptr<sstable::LsmIndex>& shared, const engine::TreeNeeds& needs) {
  using engine::TreeRecords;
  sstable::LsmIndex& index = *shared;
  engine::Tree tree;
  tree.SetIndex(shared);
  tree.segment_usages().CountFrom(1);
  const Status roots = TreeRecords::LoadRoots(&tree);
  CheckStatus(roots);
  if (roots.ok()) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    for (const uint64_t branch : needs.branches) {
      CheckStatus(LoadNeeds(&tree, &lock, {.branches = {branch}, .nodes = {}, .names = {}}));
      const engine::Head* const head = tree.FindHead(branch);
      if (head == nullptr) continue;
      static_cast<void>(CollectPath(tree, *head));
      for (uint32_t lane = 0; lane < head->lengths.size(); ++lane) {
        static_cast<void>(CollectLane(tree, *head, lane, 0, head->lengths[lane]));
        static_cast<void>(FindHoles(tree, *head, lane, 0, head->lengths[lane]));
      }
      static_cast<void>(CollectSpans(tree, *head, 0, UINT64_MAX));
      static_cast<void>(FindMark(tree, *head, true, UINT64_MAX));
    }
    for (const uint64_t node : needs.nodes) {
      CheckStatus(LoadNeeds(&tree, &lock, {.branches = {}, .nodes = {node}, .names = {}}));
      CheckStatus(LoadFarthest(&tree, &lock, node));
    }
    CheckStatus(LoadNeeds(&tree, &lock, {.branches = {}, .nodes = {}, .names = needs.names}));
  }
  CheckStatus(TreeRecords::ReadInOrder(index, {}, 100).status());
  CheckStatus(TreeRecords::ReadEvictable(index, "", {}, 100).status());
  CheckStatus(TreeRecords::ReadEvictable(index, "tenant", {}, 100).status());
  uint64_t next_ns = 0;
  CheckStatus(TreeRecords::ReadExpired(index, UINT64_MAX, {}, 100, &next_ns).status());
  std::vector<uint64_t> nodes;
  CheckStatus(TreeRecords::ReadLogged(index, {}, &nodes));
  for (uint64_t table = 0; table < 3; ++table) {
    CheckStatus(TreeRecords::ReadJoined(index, table, &nodes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const Pairs whole = MakePairs();
  fuzz::Input input(data, bytes);
  Pairs pairs = whole;
  Change(pairs, input);
  io::MemoryFileSystem files;
  sstable::BlockCache cache(1 << 16);
  sstable::TableCounters counters;
  auto opened = sstable::LsmIndex::Open(IndexOptions(files, cache, counters, StoreId{}), {});
  CAIRN_CHECK(opened.ok());
  const std::shared_ptr<sstable::LsmIndex> index = std::move(*opened);
  sstable::WriteBatch batch = index->NewBatch();
  engine::TreeNeeds needs{.branches = {}, .nodes = {}, .names = {{"", "1"}, {"tenant", "fork"}}};
  for (const auto& [key, value] : pairs) {
    CAIRN_CHECK(batch.Put(key, value).ok());
    constexpr size_t kIdKeyBytes = 9;
    if (key.size() != kIdKeyBytes) continue;
    uint64_t id = 0;
    for (const char c : key.substr(1)) id = id << 8 | static_cast<uint8_t>(c);
    if (key[0] == 'H') needs.branches.push_back(id);
    if (key[0] == 'N') needs.nodes.push_back(id);
  }
  index->Apply(std::move(batch));
  ReadAll(index, needs);
  uint64_t found = 0;
  engine::TreeRecords::Check(
      *index, 1, [](uint64_t, const engine::SealedRange&) {},
      [&](const Status& status) {
        CAIRN_CHECK(!status.ok());
        ++found;
      });
  CAIRN_CHECK(found == 0 || pairs != whole);
  return 0;
}
