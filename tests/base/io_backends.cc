// SPDX-License-Identifier: Apache-2.0
#include "tests/base/io_backends.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/core/check.h"
#include "sim/no_disk.h"
#include "sim/world.h"

namespace cairn::io::testing {
namespace {

class RealBackend final : public Backend {
 public:
  explicit RealBackend(World world) : world_(std::move(world)) {}
  World& world() override { return world_; }
  const std::string& root() const override { return directory_.path(); }

 private:
  World world_;
  TemporaryDirectory directory_;
};

class InMemoryBackend final : public Backend {
 public:
  explicit InMemoryBackend(World world) : world_(std::move(world)) {
    CAIRN_CHECK(world_.files->CreateDirectory(root_).ok());
  }
  World& world() override { return world_; }
  const std::string& root() const override { return root_; }

 private:
  World world_;
  const std::string root_ = "/store";
};

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names{"threads", "memory", "simulated", "no_disk"};
#if CAIRN_WITH_URING
  names.push_back("io_uring");
#endif
  return names;
}

std::unique_ptr<Backend> MakeBackend(const std::string& name) {
  if (name == "memory") return std::make_unique<InMemoryBackend>(MakeMemoryWorld());
  if (name == "no_disk") {
    return std::make_unique<InMemoryBackend>(
        MakeNoDiskWorld(std::make_shared<NoDisk>(), NoDiskKeeps::kAll));
  }
  if (name == "simulated") return std::make_unique<InMemoryBackend>(MakeSimWorld(1).world());
  auto world = MakeRealWorld(name == "threads" ? IoBackend::kThreads : IoBackend::kUring);
  if (!world.ok()) return nullptr;
  CAIRN_CHECK(world->files->name() == name);
  return std::make_unique<RealBackend>(std::move(world).value());
}

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TEST_TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/cairn_io_XXXXXX";
  CAIRN_CHECK(mkdtemp(path_.data()) != nullptr);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::byte> Pattern(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> pattern(bytes);
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random());
  return pattern;
}

Block::Block(size_t bytes)
    : data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes))), bytes_(bytes) {
  CAIRN_CHECK(data_ != nullptr);
  std::memset(data_, 0, bytes);
}

Block::~Block() { std::free(data_); }

}  // namespace cairn::io::testing
