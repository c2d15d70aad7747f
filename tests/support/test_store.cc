// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_store.h"

#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "base/core/check.h"

namespace cairn::testing {

TempDirectory::TempDirectory() {
  const char* base = std::getenv("TEST_TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/cairn_test_XXXXXX";
  CAIRN_CHECK(mkdtemp(path_.data()) != nullptr);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ModelSpec TinyModel(const std::string& name) {
  ModelSpec model;
  model.identity.name = name;
  model.groups.push_back(LayerGroup::FullAttention(2, 2, 4, Dtype::kBf16));
  return model;
}

ModelSpec HybridModel(const std::string& name) {
  ModelSpec model = TinyModel(name);
  model.groups.push_back(LayerGroup::SlidingWindow(3, 1, 6, Dtype::kF32, 16, 2));
  model.groups.push_back(LayerGroup::Mla(2, 36, 10, Dtype::kBf16));
  LayerGroup quantised = LayerGroup::FullAttention(1, 3, 5, Dtype::kF8E4M3);
  quantised.name = "quantised";
  quantised.planes.push_back({.name = "k_scale",
                              .role = PlaneRole::kScale,
                              .heads = 3,
                              .row_bytes = 4,
                              .dtype = Dtype::kF32});
  quantised.planes.push_back({.name = "noise",
                              .role = PlaneRole::kOpaque,
                              .heads = 1,
                              .row_bytes = 77,
                              .dtype = Dtype::kOpaque});
  model.groups.push_back(std::move(quantised));
  return model;
}

ModelSpec EveryRuleModel(const std::string& name) {
  ModelSpec model = TinyModel(name);
  model.groups.push_back(LayerGroup::SlidingWindow(1, 1, 6, Dtype::kF32, 6, 2));
  LayerGroup chunks = LayerGroup::FullAttention(1, 2, 4, Dtype::kBf16);
  chunks.name = "chunks";
  chunks.retention = {.kind = Retention::kChunkLocal, .window = 0, .sinks = 0, .chunk = 8};
  model.groups.push_back(std::move(chunks));
  model.groups.push_back(LayerGroup::Recurrent(2, 40));
  LayerGroup encoder = LayerGroup::Recurrent(1, 100);
  encoder.name = "encoder";
  encoder.retention.kind = Retention::kPerRequest;
  model.groups.push_back(std::move(encoder));
  LayerGroup guesses = LayerGroup::Mla(1, 8, 0, Dtype::kBf16);
  guesses.name = "guesses";
  guesses.optional = true;
  model.groups.push_back(std::move(guesses));
  return model;
}

ModelSpec WideModel(const std::string& name) {
  ModelSpec model;
  model.identity.name = name;
  model.groups.push_back(LayerGroup::FullAttention(8, 4, 64, Dtype::kBf16));
  return model;
}

ModelSpec TokenModel(const std::string& name) {
  ModelSpec model;
  model.identity.name = name;
  return model;
}

thread_local std::function<void()> on_allocation;

Allocator CallingAllocator() {
  Allocator allocator = Allocator::Default();
  allocator.allocate = [](void* context, size_t bytes, size_t alignment) {
    if (on_allocation) std::exchange(on_allocation, nullptr)();
    return Allocator::Default().allocate(context, bytes, alignment);
  };
  return allocator;
}

Options TinyOptions() {
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 256 << 10;
  options.spare_segments_min = 1;
  options.spare_segments_max = 2;
  options.hot_tail_bytes = 1 << 20;
  options.executor_threads = 2;
  // Most tests count reads, tree flushes and files, which the index of prefixes has of its own.
  options.index = Index::kNone;
  return options;
}

std::vector<std::string> TestWorld::Names() {
  std::vector<std::string> names{"threads", "memory", "simulated"};
#if CAIRN_WITH_URING
  names.push_back("io_uring");
#endif
  return names;
}

std::unique_ptr<TestWorld> TestWorld::Make(const std::string& name, uint64_t seed) {
  auto made = std::make_unique<TestWorld>();
  if (name == "memory" || name == "simulated") {
    made->path_ = "/store";
    made->world_ = std::make_shared<io::World>(name == "memory" ? io::MakeMemoryWorld()
                                                                : io::MakeSimWorld(seed).world());
    return made;
  }
  auto world =
      io::MakeRealWorld(name == "threads" ? io::IoBackend::kThreads : io::IoBackend::kUring);
  if (!world.ok()) return nullptr;
  made->world_ = std::make_shared<io::World>(std::move(*world));
  made->directory_ = std::make_unique<TempDirectory>();
  made->path_ = made->directory_->path() + "/store";
  return made;
}

Options TestWorld::options() const {
  Options options = TinyOptions();
  options.world = world_;
  return options;
}

std::vector<TokenId> Tokens(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 200'000);
  return tokens;
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace cairn::testing
