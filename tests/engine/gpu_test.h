// SPDX-License-Identifier: Apache-2.0
//
// KV memory on a simulated device, and a store that restores into it on the simulated machine; or
// on the card that was named (tests/gpu/card.h), and then the store is in a world that is real.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cairn/gpu.h"
#include "gpu/sim_device.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/gpu/card.h"

namespace cairn::testing {

inline constexpr uint32_t kOrdinal = 3;

// KV memory of a model on the device: the pools of a KvSet, moved there.
class DeviceKv {
 public:
  DeviceKv(const Gpu& gpu, const ModelSpec& model, Layout layout, uint64_t first, uint64_t count)
      : gpu_(gpu), model_(model) {
    for (uint32_t i = 0; i < model.groups.size(); ++i) {
      pools_.push_back(std::make_unique<KvPool>(model.groups[i], i, layout, first, count));
      const std::vector<std::byte>& memory = pools_.back()->memory();
      auto at = gpu.Allocate(memory.size());
      EXPECT_OK(at);
      memory_.push_back(*at);
      EXPECT_OK(gpu.CopyIn(*at, memory.data(), memory.size()));
    }
  }
  ~DeviceKv() {
    for (std::byte* const at : memory_) gpu_.Free(at);
    for (std::byte* const at : tables_) gpu_.Free(at);
  }
  DeviceKv(const DeviceKv&) = delete;
  DeviceKv& operator=(const DeviceKv&) = delete;

  // `tables`: they are on the device as well.
  const KvView* View(uint64_t position, uint64_t count, bool tables = false) {
    for (uint32_t i = 0; i < pools_.size(); ++i) {
      GroupView group = pools_[i]->View(position, count);
      std::vector<PlaneView>& planes = planes_.emplace_back();
      for (const PlaneView& plane : group.planes) {
        std::vector<std::byte*>& bases = bases_.emplace_back();
        for (std::byte* const base : plane.layer_bases) {
          bases.push_back(memory_[i] + (base - pools_[i]->memory().data()));
        }
        planes.push_back(plane);
        planes.back().layer_bases = bases;
      }
      group.planes = planes;
      if (tables && group.table.kind != TableKind::kNone && group.tokens_per_block != 0) {
        MoveTable(&group);
      }
      groups_.push_back(group);
    }
    view_.groups = groups_;
    view_.memory = MemoryKind::kCuda;
    view_.device = kOrdinal;
    return &view_;
  }
  std::vector<GroupView>& groups() { return groups_; }
  std::byte* base(uint32_t group) const { return memory_[group]; }

  // Puts the content of positions [begin, end) in place, as KvSet::Write.
  void Write(uint64_t seed, uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < pools_.size(); ++i) {
      pools_[i]->Write(seed, begin, end);
      const std::vector<std::byte>& memory = pools_[i]->memory();
      EXPECT_OK(gpu_.CopyIn(memory_[i], memory.data(), memory.size()));
    }
  }

  // All bytes are those of a KvSet with this content in [begin, end).
  bool Holds(Layout layout, uint64_t first, uint64_t count, uint64_t begin, uint64_t end,
             uint64_t seed = kSeed) {
    for (uint32_t i = 0; i < pools_.size(); ++i) {
      KvPool want(model_.groups[i], i, layout, first, count);
      want.Write(seed, begin, end);
      if (Bytes(i) != want.memory()) return false;
    }
    return true;
  }
  std::vector<std::byte> Bytes(uint32_t group) const {
    std::vector<std::byte> bytes(pools_[group]->memory().size());
    if (dynamic_cast<gpu::SimDevice*>(gpu_.device().get()) != nullptr) {
      // The host may look at it; nothing runs for that.
      std::copy_n(memory_[group], bytes.size(), bytes.data());
    } else {
      EXPECT_OK(gpu_.CopyOut(bytes.data(), memory_[group], bytes.size()));
    }
    return bytes;
  }

 private:
  void MoveTable(GroupView* group) {
    const uint64_t bytes = group->table.count * (group->table.is_64_bit ? 8 : 4);
    auto at = gpu_.Allocate(bytes);
    EXPECT_OK(at);
    tables_.push_back(*at);
    EXPECT_OK(gpu_.CopyIn(*at, static_cast<const std::byte*>(group->table.entries), bytes));
    group->table.entries = *at;
    group->table.on_device = true;
    // The pool's table is a permutation of all blocks, of all slots.
    const bool slots = group->table.kind == TableKind::kSlots;
    group->blocks = group->table.count / (slots ? group->tokens_per_block : 1);
  }

  const Gpu gpu_;
  const ModelSpec model_;
  std::vector<std::unique_ptr<KvPool>> pools_;
  std::vector<std::byte*> memory_, tables_;
  std::deque<std::vector<PlaneView>> planes_;
  std::deque<std::vector<std::byte*>> bases_;
  std::vector<GroupView> groups_;
  KvView view_;
};

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({.seed = 1}); }
  // Whether it needs nothing that a SimDevice alone has; `device_` is null then.
  virtual bool OnACard() const { return false; }

  void Start(const gpu::SimDeviceOptions& device) {
    chat_ = {};
    ASSERT_OK(store_.Close());
    Options options = TinyOptions();
    options.segment_bytes = 4 << 20;
    if (OnACard()) {
      ASSERT_OK_ASSIGN(const std::shared_ptr<gpu::Device> card, OpenCard());
      gpu_.emplace(card, kOrdinal);
      if (disk_ == nullptr) disk_ = TestWorld::Make("threads");
      options.gpus = {*gpu_};
      ASSERT_OK_ASSIGN(store_, disk_->Open(options));
      return;
    }
    device_ = gpu::MakeSimDevice(sim_.scheduler, device);
    gpu_.emplace(device_, gpu_options_);
    options.world = std::make_shared<io::World>(sim_.world());
    options.gpus = {*gpu_};
    options.max_memory_bytes += gpu_options_.pinned_bytes;
    options.listener = std::make_shared<EventListener>();
    options.listener->on_event = [this](const std::string& line) { events_.push_back(line); };
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
  }
  void Fill(const ModelSpec& model, uint64_t count, uint64_t step) {
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    for (uint64_t at = 0; at < count; at += step) {
      ASSERT_OK(AppendSome(chat_, model, at, std::min(step, count - at), seed_));
    }
  }
  // Exponents of a few values, as models have them: what kv64 packs.
  void AppendPacked(const ModelSpec& model, uint64_t begin, uint64_t count) {
    KvSet kv(model, Layout::kContiguous, begin, count);
    kv.Write(kSeed, begin, begin + count);
    const KvView* const view = kv.View(begin, count);
    for (const PlaneView& plane : view->groups[0].planes) {
      for (std::byte* const base : plane.layer_bases) {
        for (int64_t i = 1; i < plane.head_stride * model.groups[0].planes[0].heads; i += 2) {
          base[i] = (base[i] & std::byte{0x81}) | std::byte{0x3e};
        }
      }
    }
    ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(count, begin), view)));
  }
  void Find() { ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat")); }

  ::testing::AssertionResult Restores(const ModelSpec& model, Layout layout, uint64_t begin,
                                      uint64_t end, bool tables = false) {
    const uint64_t first = begin - std::min<uint64_t>(begin, 2);
    const uint64_t count = end - first + 3;
    DeviceKv got(*gpu_, model, layout, first, count);
    std::vector<TokenId> tokens(end - begin);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.tokens = tokens;
    request.into = got.View(begin, end - begin, tables);
    const auto result = chat_.Restore(request);
    if (!result.ok()) return ::testing::AssertionFailure() << result.status().ToString();
    if (!got.Holds(layout, first, count, begin, end, seed_)) {
      return ::testing::AssertionFailure() << LayoutName(layout) << ": bytes differ";
    }
    const auto ids = chat_.ReadTokens(begin, end);
    if (!ids.ok() || *ids != tokens) return ::testing::AssertionFailure() << "ids differ";
    return ::testing::AssertionSuccess();
  }

  const io::SimWorld sim_ = io::MakeSimWorld(1);
  std::unique_ptr<TestWorld> disk_;
  GpuOptions gpu_options_{.ordinal = kOrdinal};
  std::vector<std::string> events_;
  std::shared_ptr<gpu::SimDevice> device_;
  std::optional<Gpu> gpu_;
  uint64_t seed_ = kSeed;  // Fill appends, and Restores expects, its content.
  Store store_;
  Branch chat_;
};

// Events of the caller, one a layer, given back at the end.
class LayerEvents {
 public:
  LayerEvents(gpu::Device* device, size_t layers) : device_(*device) {
    for (size_t i = 0; i < layers; ++i) {
      const auto event = device_.NewEvent();
      EXPECT_OK(event);
      events_.push_back(*event);
      handles_.push_back(gpu::SimDevice::HandleOf(*event));
    }
  }
  ~LayerEvents() {
    for (const gpu::Event event : events_) device_.Return(event);
  }
  LayerEvents(const LayerEvents&) = delete;
  LayerEvents& operator=(const LayerEvents&) = delete;
  gpu::Event operator[](size_t layer) const { return events_[layer]; }
  const std::vector<uintptr_t>& handles() const { return handles_; }

 private:
  gpu::Device& device_;
  std::vector<gpu::Event> events_;
  std::vector<uintptr_t> handles_;
};

}  // namespace cairn::testing
