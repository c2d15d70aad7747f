// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/core/check.h"
#include "base/io/path.h"
#include "gpu/device.h"
#include "tools/cli/doctor.h"
#include "tools/cli/output.h"
#include "tools/gpu_name.h"

namespace cairn::cli {

namespace {

namespace fs = std::filesystem;

// The driver, and how many cards it has.
Finding DriverFinding() {
  const std::string driver = FirstLine("/proc/driver/nvidia/version");
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    if (driver.empty()) {
      return {Verdict::kOk, "GPU", "none, no driver: KV is exchanged with host memory"};
    }
    return {Verdict::kWarn, "GPU",
            driver + ", but libcuda.so.1 cannot be loaded (" + dlerror() +
                "): give the container the driver's libraries"};
  }
  using Init = int (*)(unsigned);
  using GetCount = int (*)(int*);
  const auto init = reinterpret_cast<Init>(dlsym(library, "cuInit"));
  const auto get_count = reinterpret_cast<GetCount>(dlsym(library, "cuDeviceGetCount"));
  int count = 0;
  int error = init == nullptr || get_count == nullptr ? -1 : init(0);
  if (error == 0) error = get_count(&count);
  const bool built = CAIRN_WITH_CUDA;
  if (error != 0) {
    return {Verdict::kWarn, "GPU",
            "libcuda.so.1 is there, but gives error " + std::to_string(error) +
                (driver.empty() ? "; no driver is loaded" : "; " + driver)};
  }
  const std::string devices = Plural(static_cast<uint64_t>(count), "device");
  if (count > 0 && !built) {
    return {Verdict::kWarn, "GPU",
            devices + ", but this build has no CUDA: tools/setup cuda, then build anew"};
  }
  return {Verdict::kOk, "GPU", devices + ", " + driver};
}

// Whether a PCI device lends memory to others.
bool HasPeerMemory() {
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    if (fs::exists(device.path() / "p2pmem", error)) return true;
  }
  return false;
}

struct Rates {
  double pin_s_per_gib = 0, disk = 0, bus = 0;  // GB/s.
};

// Device memory, pinned memory, a stream and an event, given back at the end.
class Card {
 public:
  static constexpr uint64_t kBytes = 32u << 20;

  explicit Card(const Gpu& gpu) : device_(*gpu.device()) {}
  ~Card() {
    for (std::byte* const at : {pinned_, memory_}) {
      if (at != nullptr) device_.Free(at);
    }
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  Status Open() {
    CAIRN_ASSIGN_OR_RETURN(pinned_, device_.Allocate(gpu::Memory::kPinned, kBytes));
    CAIRN_ASSIGN_OR_RETURN(memory_, device_.Allocate(gpu::Memory::kDevice, kBytes));
    CAIRN_ASSIGN_OR_RETURN(stream_, device_.NewStream(gpu::Priority::kLow));
    CAIRN_ASSIGN_OR_RETURN(end_, device_.NewEvent());
    return Status::Ok();
  }
  Status CopyIn(int times) {
    const gpu::CopyPiece piece{memory_, pinned_, kBytes};
    for (int i = 0; i < times; ++i) CAIRN_RETURN_IF_ERROR(device_.Copy(stream_, {&piece, 1}));
    CAIRN_RETURN_IF_ERROR(device_.Record(stream_, end_));
    return device_.Wait(end_, io::kNoDeadline);
  }
  std::span<std::byte> pinned() const { return {pinned_, kBytes}; }

 private:
  gpu::Device& device_;
  std::byte *pinned_ = nullptr, *memory_ = nullptr;
  gpu::Stream stream_;
  gpu::Event end_;
};

Result<Rates> Measure(io::World& world, const std::string& path, const Gpu& gpu) {
  io::Scheduler& clock = *world.scheduler;
  const auto seconds_since = [&](uint64_t from_ns) {
    return static_cast<double>(clock.MonotonicNs() - from_ns) * 1e-9;
  };
  constexpr double kGb = 1e9, kGib = 1u << 30;
  constexpr int kCopies = 8;
  Rates rates;
  Card card(gpu);
  uint64_t from_ns = clock.MonotonicNs();
  CAIRN_RETURN_IF_ERROR(card.Open());
  rates.pin_s_per_gib = seconds_since(from_ns) * kGib / Card::kBytes;
  std::memset(card.pinned().data(), 0x5a, Card::kBytes);
  CAIRN_RETURN_IF_ERROR(card.CopyIn(1));
  from_ns = clock.MonotonicNs();
  CAIRN_RETURN_IF_ERROR(card.CopyIn(kCopies));
  rates.bus = kCopies * Card::kBytes / seconds_since(from_ns) / kGb;

  CAIRN_ASSIGN_OR_RETURN(
      const auto file,
      world.files->Open(path, {.write = true, .create = true, .exclusive = true, .direct = true}));
  Status status = file->Write(0, card.pinned(), /*durable=*/true);
  from_ns = clock.MonotonicNs();
  if (status.ok()) status = file->Read(0, card.pinned());
  rates.disk = Card::kBytes / seconds_since(from_ns) / kGb;
  const Status removed = world.files->Remove(path);
  CAIRN_RETURN_IF_ERROR(status);
  CAIRN_RETURN_IF_ERROR(removed);
  return rates;
}

}  // namespace

void CheckGpu(Findings* findings) {
  findings->push_back(DriverFinding());
  std::error_code error;
  void* const cufile = dlopen("libcufile.so.0", RTLD_LAZY | RTLD_LOCAL);
  const auto found = [](bool is) { return is ? ": found" : ": not found"; };
  findings->push_back({Verdict::kOk, "GPU direct",
                       std::string("libcufile") + found(cufile != nullptr) + ", nvidia-fs" +
                           found(fs::exists("/proc/driver/nvidia-fs", error)) + ", P2PDMA" +
                           found(HasPeerMemory()) +
                           ". None is used: what is read is checked in pinned memory"});
}

void MeasureGpu(io::World& world, const std::string& directory, const std::string& name,
                Findings* findings) {
  const Result<Gpu> gpu = OpenGpu(name);
  if (!gpu.ok()) {
    const bool none = gpu.status().code() == StatusCode::kNotFound;
    findings->push_back({none ? Verdict::kOk : Verdict::kWarn, "GPU rates",
                         "not measured: " + std::string(gpu.status().message())});
    return;
  }
  const std::string path =
      io::JoinPath(directory, ".cairn-doctor-gpu-" + std::to_string(getpid()) + ".tmp");
  const Result<Rates> rates = Measure(world, path, *gpu);
  if (!rates.ok()) {
    findings->push_back({Verdict::kWarn, "GPU rates", rates.status().ToString()});
    return;
  }
  char text[128];
  std::snprintf(text, sizeof text,
                "disk to pinned memory %.1f GB/s, that to %s %.1f GB/s; to pin takes %.2f s a GiB",
                rates->disk, name.c_str(), rates->bus, rates->pin_s_per_gib);
  findings->push_back({Verdict::kOk, "GPU rates", text});
}

}  // namespace cairn::cli
