// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gpu_restores.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "sim/world.h"
#include "tests/engine/gpu_test.h"

namespace cairn::sim {
namespace {

using testing::DeviceKv;
using testing::kOrdinal;
using testing::kSeed;
using testing::KvPool;
using testing::Layout;

using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xA7};
constexpr std::byte kBlank{0xEE};  // Initial content of pools.
constexpr uint64_t kOpenings = 4;  // Memory is empty after each.

// One restore into memory of the device.
class Target {
 public:
  Target(const Gpu& gpu, const ModelSpec& model, Layout layout, uint64_t begin, uint64_t end)
      : begin_(begin), end_(end) {
    // Blocks without a table begin where the view does.
    const uint64_t before = layout == Layout::kBlocksNoTable ? 0 : std::min<uint64_t>(begin, 2);
    const uint64_t first = begin - before;
    const uint64_t count = end - first + 3;
    got_.emplace(gpu, model, layout, first, count);
    for (uint32_t i = 0; i < model.groups.size(); ++i) {
      KvPool pool(model.groups[i], i, layout, first, count);
      for (uint32_t layer = 0; layer < model.groups[i].layers; ++layer) {
        KvPool only(model.groups[i], i, layout, first, count);
        only.Write([](uint64_t) { return kSeed; }, begin, end, layer, 1);
        layers_.push_back({i, only.memory(), false});
      }
      pool.Write(kSeed, begin, end);
      want_.push_back(pool.memory());
    }
    words_ = std::vector<std::atomic<uint32_t>>(layers_.size());
    progress_.layers = words_;
  }

  RestoreRequest Request(bool tables) {
    RestoreRequest request;
    request.begin = begin_;
    request.end = end_;
    request.into = got_->View(begin_, end_ - begin_, tables);
    return request;
  }
  LayerProgress* progress() { return &progress_; }
  size_t layers() const { return layers_.size(); }
  const std::atomic<uint32_t>& word(size_t layer) const { return words_[layer]; }
  std::byte* memory() const { return got_->base(0); }
  std::span<std::byte> SomeBlank() const {
    return {memory(), std::min<size_t>(64, want_[0].size())};
  }

  // Looks at layers that are reported complete and were not looked at yet. False: one is
  // incomplete. The host may look at the memory of a simulated device; nothing runs for that.
  bool LookAtLayers(uint64_t* seen) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      if (layer.seen || words_[i].load() != kLayerComplete) continue;
      layer.seen = true;
      ++*seen;
      const std::byte* const is = got_->base(layer.group);
      for (size_t at = 0; at < layer.bytes.size(); ++at) {
        if (layer.bytes[at] != kBlank && layer.bytes[at] != is[at]) return false;
      }
    }
    return true;
  }
  bool IsWhole() const {
    for (uint32_t i = 0; i < want_.size(); ++i) {
      if (!std::equal(want_[i].begin(), want_[i].end(), got_->base(i))) return false;
    }
    return true;
  }
  // Every byte is as it was or as it should become.
  bool IsNeverElse() const {
    for (uint32_t i = 0; i < want_.size(); ++i) {
      const std::byte* const is = got_->base(i);
      for (size_t at = 0; at < want_[i].size(); ++at) {
        if (is[at] != want_[i][at] && is[at] != kBlank) return false;
      }
    }
    return true;
  }
  void Poison() {
    for (uint32_t i = 0; i < want_.size(); ++i) {
      std::fill_n(got_->base(i), want_[i].size(), kPoison);
    }
  }
  bool IsPoisoned() const {
    for (uint32_t i = 0; i < want_.size(); ++i) {
      const auto same = [](std::byte byte) { return byte == kPoison; };
      const std::byte* const at = got_->base(i);
      if (!std::all_of(at, at + want_[i].size(), same)) return false;
    }
    return true;
  }

 private:
  struct Layer {
    uint32_t group = 0;
    Bytes bytes;  // The pool's, with this layer alone in it.
    bool seen = false;
  };
  const uint64_t begin_, end_;
  std::optional<DeviceKv> got_;
  std::vector<Bytes> want_;
  std::vector<Layer> layers_;
  std::vector<std::atomic<uint32_t>> words_;
  LayerProgress progress_{};
};

class Run {
 public:
  explicit Run(const GpuRestoresOptions& options)
      : options_(options), random_(options.seed), machine_(io::MakeSimWorld(options.seed)) {}

  GpuRestoresResult All() {
    for (uint64_t i = 0; i < kOpenings && result_.violation.empty(); ++i) {
      Open();
      if (i == 0) Begin();
      for (uint64_t rounds = 1 + random_.Below(2); rounds > 0 && result_.violation.empty();
           --rounds) {
        Round();
      }
      if (device_ != nullptr && !device_->lost().ok()) ++result_.lost;
      branch_ = {};
      const Status closed = store_.Close();
      if (!closed.ok()) Fail("close: " + closed.ToString());
    }
    result_.schedule_hash = machine_.scheduler->schedule_hash();
    return std::move(result_);
  }

 private:
  void Fail(const std::string& what) {
    if (result_.violation.empty()) result_.violation = what;
  }
  bool OneIn(uint64_t n) { return random_.Below(n) == 0; }

  void Open() {
    constexpr std::array<uint32_t, 7> kKinds = {gpu::kFailAllocate,
                                                gpu::kFailCopy,
                                                gpu::kFailLaunch,
                                                gpu::kFailEvent,
                                                gpu::kFailQuery,
                                                gpu::kFailAny,
                                                0};
    gpu::SimDeviceOptions device{.seed = random_.Next()};
    device.fail_kinds = kKinds[random_.Below(kKinds.size())];
    device.fail_at = UINT64_MAX;
    device.fail_lost = OneIn(4);
    // A device that cannot be asked for ten seconds may still touch what it was given.
    const bool asks = (device.fail_kinds & (gpu::kFailEvent | gpu::kFailQuery)) != 0;
    device.fail_on = OneIn(3) && !asks;
    device_ = gpu::MakeSimDevice(machine_.scheduler, device);
    Options options = testing::TinyOptions();
    options.segment_bytes = 4 << 20;
    options.world = std::make_shared<io::World>(machine_.world());
    options.gpus = {Gpu(device_, kOrdinal)};
    auto opened = Store::Open("/store", options);
    CAIRN_CHECK(opened.ok());
    store_ = std::move(*opened);
    if (length_ == 0) return;
    const auto found = store_.FindBranch("chat");
    CAIRN_CHECK(found.ok());
    branch_ = *found;
  }

  // The conversation so far.
  void Begin() {
    const uint64_t kind = random_.Below(8);
    model_ = kind == 0  ? testing::WideModel()
             : kind < 4 ? testing::HybridModel()
                        : testing::TinyModel();
    const auto id = store_.RegisterModel(model_);
    CAIRN_CHECK(id.ok());
    auto made = store_.CreateBranch(*id, {.name = "chat"});
    CAIRN_CHECK(made.ok());
    branch_ = *made;
    for (uint64_t parts = 1 + random_.Below(4); parts > 0; --parts) {
      Append(1 + random_.Below(kind == 0 ? 100 : 50));
      if (OneIn(2)) CAIRN_CHECK(store_.Compact().ok());
    }
  }

  void Append(uint64_t count) {
    const auto appended = testing::AppendSome(branch_, model_, length_, count);
    if (!appended.ok()) return Fail("append: " + appended.status().ToString());
    length_ += count;
  }

  // Reads fail, now and then or from now on, or find what is not there; until MendDisk.
  void StrikeDisk() {
    io::SimFault fault;
    fault.persistent = OneIn(2);
    fault.when = [this, one_in = uint64_t{2} << random_.Below(3)](const io::SimOperation& of) {
      return of.op == io::SimOp::kRead && random_.Below(one_in) == 0;
    };
    switch (random_.Below(6)) {
      case 0: fault.error = EIO; break;
      case 1: fault.error = EINTR; break;
      case 2: fault.transferred = 512; break;
      case 3: fault.delay_ns = 1'000'000 << random_.Below(6); break;
      case 4: return FlipBit();
      default: return;
    }
    machine_.disk->AddFault(std::move(fault));
  }
  // In a file whose name is never given again, since it may go meanwhile.
  void FlipBit() {
    std::vector<std::string> files = machine_.disk->Files();
    std::erase_if(files, [](const std::string& path) {
      return path.find("/log/") == std::string::npos && path.find("/tables/") == std::string::npos;
    });
    const std::string& path = files[random_.Below(files.size())];
    const auto bytes = machine_.disk->ReadRaw(path);
    if (!bytes.ok() || bytes->empty()) return;
    flipped_ = {path, random_.Below(bytes->size())};
    CAIRN_CHECK(machine_.disk->FlipBit(flipped_->path, flipped_->offset, 3).ok());
  }
  void MendDisk() {
    machine_.disk->ClearFaults();
    if (flipped_.has_value()) {
      static_cast<void>(machine_.disk->FlipBit(flipped_->path, flipped_->offset, 3));
    }
  }

  // One restore, or two at once, with whatever goes wrong meanwhile; then one into host memory.
  void Round() {
    if (device_->lost().ok()) Restores();
    if (!result_.violation.empty()) return;
    const auto host = testing::HasKv(branch_, model_, 0, length_);
    if (!host) Fail(std::string("into host memory: ") + host.message());
    if (OneIn(2)) Append(1 + random_.Below(10));
    if (OneIn(4)) {
      const Status compacted = store_.Compact();
      if (!compacted.ok()) Fail("compact: " + compacted.ToString());
    }
  }

  void Restores() {
    std::vector<std::unique_ptr<Target>> targets;
    std::vector<RestoreRequest> requests;
    for (uint64_t count = OneIn(4) ? 2 : 1; count > 0; --count) {
      const uint64_t begin = OneIn(2) ? 0 : random_.Below(length_);
      const uint64_t end = OneIn(2) ? length_ : begin + 1 + random_.Below(length_ - begin);
      const auto& layouts = testing::AllLayouts();
      targets.push_back(std::make_unique<Target>(
          Gpu(device_, kOrdinal), model_, layouts[random_.Below(layouts.size())], begin, end));
      requests.push_back(targets.back()->Request(OneIn(2)));
    }
    // The first target gets what the caller has done on the device before, and its events.
    const auto ready = device_->NewEvent();
    const auto mine = device_->NewStream(gpu::Priority::kHigh);
    CAIRN_CHECK(ready.ok() && mine.ok());
    const testing::LayerEvents events(device_.get(), targets[0]->layers());
    GpuSync sync;
    if (OneIn(2)) {
      CAIRN_CHECK(device_->Fill(*mine, targets[0]->SomeBlank(), kBlank).ok() &&
                  device_->Record(*mine, *ready).ok());
      sync.ready = gpu::SimDevice::HandleOf(*ready);
      requests[0].gpu = &sync;
    }
    if (OneIn(2)) {
      sync.layer_events = events.handles();
      requests[0].gpu = &sync;
    }
    if (OneIn(2)) {
      sync.fall_back_to_host = true;
      requests[0].gpu = &sync;
    }
    Strike();
    std::vector<Ticket> tickets;
    std::vector<Status> ended;
    {
      bool over = false;
      const auto watcher = machine_.scheduler->StartThread("watcher", [&] {
        for (; !over; machine_.scheduler->Sleep(20'000)) Look(targets, &result_.layers_early);
      });
      for (RestoreRequest& request : requests) {
        if (OneIn(4)) request.timeout_ns = uint64_t{1} << random_.Below(22);
      }
      for (size_t i = 0; i < targets.size(); ++i) {
        auto ticket = branch_.RestoreAsync(requests[i], targets[i]->progress());
        ended.push_back(ticket.status());
        tickets.push_back(ticket.ok() ? std::move(*ticket) : Ticket());
      }
      for (size_t i = 0; i < targets.size(); ++i) {
        if (!tickets[i].valid()) continue;
        const bool cancels = OneIn(4);
        if (cancels) {
          machine_.scheduler->Sleep(uint64_t{1} << random_.Below(22));
          static_cast<void>(tickets[i].Cancel());
        }
        ended[i] = tickets[i].Wait();
        if (!cancels && ended[i].code() == StatusCode::kCancelled) Fail("nobody cancelled it");
      }
      over = true;
    }
    MendDisk();
    const bool device = device_->calls() > armed_at_;
    device_->FailAt(UINT64_MAX);
    for (size_t i = 0; i < targets.size(); ++i) Judge(*targets[i], requests[i], ended[i], device);
    static_cast<void>(device_->Wait(*ready, io::kNoDeadline));  // The caller's own event.
    Afterwards(targets);
    flipped_.reset();
    device_->Return(*mine);
    device_->Return(*ready);
  }

  void Strike() {
    struck_before_ = machine_.disk->faults_struck();
    armed_at_ = UINT64_MAX;
    if (OneIn(2)) StrikeDisk();
    if (OneIn(3)) return;
    armed_at_ = device_->calls() + random_.Below(uint64_t{1} << random_.Below(9));
    device_->FailAt(armed_at_);
  }

  void Look(const std::vector<std::unique_ptr<Target>>& targets, uint64_t* seen) {
    for (const auto& target : targets) {
      if (options_.wrong_byte) target->memory()[0] ^= std::byte{1};
      if (!target->LookAtLayers(seen)) Fail("a layer that is told complete is not there");
    }
  }

  void Judge(Target& target, const RestoreRequest& request, const Status& status, bool device) {
    ++result_.restores;
    const bool disk = machine_.disk->faults_struck() > struck_before_ || flipped_.has_value();
    uint64_t seen = 0;
    if (options_.wrong_byte) target.memory()[0] ^= std::byte{1};
    if (!target.LookAtLayers(&seen)) Fail("a layer that is told complete is not there");
    for (size_t i = 0; i < target.layers(); ++i) {
      const uint32_t word = target.word(i).load();
      if (word != kLayerComplete && (status.ok() || word != kLayerFailed)) {
        Fail("it is over, " + status.ToString() + ", and a layer's word is " +
             std::to_string(word));
      }
    }
    if (!target.IsNeverElse()) Fail("bytes that are neither old nor new: " + status.ToString());
    const std::string says = status.ToString();
    switch (status.code()) {
      case StatusCode::kOk:
        ++result_.whole;
        if (!target.IsWhole()) Fail("it says yes, and something is missing");
        return;
      case StatusCode::kCancelled: ++result_.cancelled; return;
      case StatusCode::kDeadlineExceeded:
        ++result_.timed_out;
        if (request.timeout_ns == UINT64_MAX) Fail("it had all time: " + says);
        return;
      case StatusCode::kIoError:
      case StatusCode::kOutOfMemory:
      case StatusCode::kCorruption: break;
      default: return Fail("it ends so: " + says);
    }
    // The subject of the error, by name.
    const bool names_device =
        says.find("device: ") != std::string::npos || status.code() == StatusCode::kOutOfMemory;
    const bool names_file =
        says.find("log/") != std::string::npos || says.find("tables/") != std::string::npos;
    if (!(names_device && device) && !(names_file && disk)) Fail("of something else: " + says);
    ++(device && disk ? result_.by_either : device ? result_.by_device : result_.by_disk);
  }

  // The memory is somebody else's now.
  void Afterwards(const std::vector<std::unique_ptr<Target>>& targets) {
    for (const auto& target : targets) target->Poison();
    if (options_.late_byte) targets[0]->memory()[0] = std::byte{0};
    device_->RunAll();
    machine_.scheduler->Sleep(1'000'000'000);
    device_->RunAll();
    for (const auto& target : targets) {
      if (!target->IsPoisoned()) Fail("the memory was touched when the restore was over");
    }
  }

  struct Place {
    std::string path;
    uint64_t offset = 0;
  };

  const GpuRestoresOptions options_;
  SeededRandom random_;
  const io::SimWorld machine_;
  std::shared_ptr<gpu::SimDevice> device_;
  Store store_;
  Branch branch_;
  ModelSpec model_;
  uint64_t length_ = 0;
  uint64_t armed_at_ = UINT64_MAX, struck_before_ = 0;
  std::optional<Place> flipped_{};
  GpuRestoresResult result_;
};

}  // namespace

void GpuRestoresResult::Add(const GpuRestoresResult& other) {
  restores += other.restores;
  whole += other.whole;
  cancelled += other.cancelled;
  timed_out += other.timed_out;
  by_device += other.by_device;
  by_disk += other.by_disk;
  by_either += other.by_either;
  lost += other.lost;
  layers_early += other.layers_early;
  if (violation.empty()) violation = other.violation;
}

std::string GpuRestoresResult::Counts() const {
  return "restores " + std::to_string(restores) + ": whole " + std::to_string(whole) +
         ", cancelled " + std::to_string(cancelled) + ", timed out " + std::to_string(timed_out) +
         ", failed by the device " + std::to_string(by_device) + ", by the disk " +
         std::to_string(by_disk) + ", by either " + std::to_string(by_either) + "; devices lost " +
         std::to_string(lost) + ", layers looked at early " + std::to_string(layers_early);
}

GpuRestoresResult RunGpuRestores(const GpuRestoresOptions& options) { return Run(options).All(); }

}  // namespace cairn::sim
