// SPDX-License-Identifier: Apache-2.0
//
// codec: what the lossless codec saves, and what it costs a core, beside memcpy of the same pages.
//
// Pages lie in more memory than processors cache, as they do in a restore, so an arm reads each
// from memory and writes the result there; the same for pages that stay in the cache is measured
// apart.

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "tools/bench/bench.h"
#include "tools/bench/kv_pages.h"

namespace cairn::bench {
namespace {

using Page = std::span<const std::byte>;

// The clock costs a hundredth of coding this many pages of 32 KiB.
constexpr size_t kPagesPerOp = 8;
constexpr size_t kBlockTokens = 4096;

struct Coding {
  const char* name;
  const char* meaning;
  std::optional<uint8_t> flags;
};
const Coding kCodings[] = {
    {"auto", "flags by estimate", std::nullopt},
    {"kv64", "no flags", uint8_t{0}},
    {"kv64s", "channel base, folded signs", uint8_t{kFrameChannelBase | kFrameFoldedSigns}}};

// The pages, repeated over `bytes` of memory, and room for the results.
struct Memory {
  FrameShape shape;
  size_t count = 0, page_bytes = 0, frame_room = 0;
  std::vector<std::byte> raw, out, frames;

  Memory(const FrameShape& page_shape, const std::vector<Page>& pages, uint64_t bytes)
      : shape(page_shape), page_bytes(page_shape.raw_bytes()), frame_room(MaxFrameBytes(shape)) {
    const size_t ops = std::max<size_t>(1, bytes / (page_bytes * kPagesPerOp));
    count = ops * kPagesPerOp;
    raw.reserve(count * page_bytes);
    for (size_t i = 0; i < count; ++i) {
      const Page page = pages[i % pages.size()];
      raw.insert(raw.end(), page.begin(), page.end());
    }
    out.resize(raw.size());
    frames.resize(out.size() + frame_room);
  }
  std::span<const std::byte> Raw(size_t i) const { return {&raw[i * page_bytes], page_bytes}; }
  std::span<std::byte> Mutable(size_t i) { return {&raw[i * page_bytes], page_bytes}; }
  std::span<std::byte> Out(size_t i) { return {&out[i * page_bytes], page_bytes}; }
  std::span<std::byte> FrameAt(size_t begin) { return {&frames[begin], frame_room}; }
};

// Frames of one coding, one behind the other, as a table holds them.
struct Frames {
  std::vector<std::byte> bytes;
  std::vector<Page> pages;

  Frames(Memory& memory, const FrameOptions& options) {
    std::vector<size_t> ends;
    size_t end = 0;
    for (size_t i = 0; i < memory.count; ++i) {
      end += EncodeFrame(memory.shape, memory.Raw(i), memory.FrameAt(end), options);
      ends.push_back(end);
    }
    bytes.assign(memory.frames.begin(), memory.frames.begin() + static_cast<ptrdiff_t>(end));
    size_t begin = 0;
    for (const size_t next : ends) {
      pages.emplace_back(&bytes[begin], next - begin);
      begin = next;
    }
  }
};

struct Ratios {
  uint64_t raw = 0, framed = 0;
  void Add(const Ratios& other) {
    raw += other.raw;
    framed += other.framed;
  }
  double value() const { return static_cast<double>(raw) / static_cast<double>(framed); }
};

// Frame bytes with their headers, over the layers from `first_layer` on.
Ratios Pack(const KvPlane& plane, uint32_t first_layer, const Coding& coding) {
  Ratios ratios;
  std::vector<std::byte> frame(MaxFrameBytes(plane.page_shape()));
  for (uint32_t layer = first_layer; layer < plane.layers; ++layer) {
    for (const Page page : plane.Pages(layer)) {
      ratios.raw += page.size();
      ratios.framed += EncodeFrame(plane.page_shape(), page, frame, {.flags = coding.flags});
    }
  }
  return ratios;
}

void ReportRatios(const KvPages& pages, uint32_t first_layer, Report* report) {
  for (const Coding& coding : kCodings) {
    Ratios all;
    for (const KvPlane& plane : pages.planes) {
      const Ratios ratios = Pack(plane, first_layer, coding);
      all.Add(ratios);
      if (pages.planes.size() > 1) {
        report->Value(std::string(coding.name) + "_ratio_" + plane.name, ratios.value(),
                      "raw to frame bytes of that plane");
      }
    }
    report->Value(std::string(coding.name) + "_ratio", all.value(),
                  std::string("raw to frame bytes with headers: ") + coding.meaning);
  }
  Ratios with_first;
  for (const KvPlane& plane : pages.planes) with_first.Add(Pack(plane, 0, kCodings[0]));
  report->Value("auto_ratio_all_layers", with_first.value(),
                "with layer 0, whose rows repeat with the tokens");
}

Status ReportTokens(const std::vector<uint32_t>& ids, Report* report) {
  if (ids.empty()) return Status::Ok();
  uint64_t bytes = 0;
  for (size_t begin = 0; begin < ids.size(); begin += kBlockTokens) {
    const size_t count = std::min(kBlockTokens, ids.size() - begin);
    CAIRN_ASSIGN_OR_RETURN(const auto block, EncodeTokens({&ids[begin], count}));
    bytes += block.size();
  }
  report->Value("token_bits", 8.0 * static_cast<double>(bytes) / static_cast<double>(ids.size()),
                "of a token id in blocks of 4096, headers included");
  return Status::Ok();
}

// Calls `work` for the next kPagesPerOp pages, round and round.
Arm MakeArm(const std::string& name, const Memory& memory, std::function<Status(size_t)> work) {
  Arm arm{.name = name, .bytes_per_op = kPagesPerOp * memory.page_bytes};
  arm.op = [work = std::move(work), count = memory.count, next = size_t{0}](double*) mutable {
    for (size_t i = 0; i < kPagesPerOp; ++i) CAIRN_RETURN_IF_ERROR(work(next + i));
    next = (next + kPagesPerOp) % count;
    return Status::Ok();
  };
  return arm;
}

Arm CopyArm(const std::string& name, Memory& memory) {
  return MakeArm(name, memory, [&memory](size_t i) {
    std::memcpy(memory.Out(i).data(), memory.Raw(i).data(), memory.page_bytes);
    return Status::Ok();
  });
}
Arm EncodeArm(const std::string& name, Memory& memory, const FrameOptions& options) {
  return MakeArm(name, memory, [&memory, options, end = size_t{0}](size_t i) mutable {
    if (i == 0) end = 0;
    end += EncodeFrame(memory.shape, memory.Raw(i), memory.FrameAt(end), options);
    return Status::Ok();
  });
}
Arm DecodeArm(const std::string& name, Memory& memory, const Frames& frames, CodecPath path) {
  return MakeArm(name, memory, [&memory, &frames, path](size_t i) {
    return DecodeFrame(memory.shape, frames.pages[i], memory.Out(i), path);
  });
}

// As sealing does it: quantised in place, which costs the same when they are already, and packed.
Arm QuantiseArm(const std::string& name, Memory& memory, const FrameOptions& options) {
  return MakeArm(name, memory, [&memory, options, end = size_t{0}](size_t i) mutable {
    if (i == 0) end = 0;
    QuantiseFrame(memory.shape, options.scales, memory.Mutable(i), options.path);
    end += EncodeFrame(memory.shape, memory.Raw(i), memory.FrameAt(end), options);
    return Status::Ok();
  });
}

// Outside the timing: every page comes back.
Status Verify(Memory& memory, const Frames& frames, CodecPath path) {
  for (size_t i = 0; i < memory.count; ++i) {
    CAIRN_RETURN_IF_ERROR(DecodeFrame(memory.shape, frames.pages[i], memory.Out(i), path));
  }
  if (memory.out == memory.raw) return Status::Ok();
  return Status(StatusCode::kCorruption, "decoded pages differ from their source");
}

struct Scaling {
  const char* name;
  FrameScales scales;
};
const Scaling kScalings[] = {{"int8_channel", FrameScales::kChannel},
                             {"int8_row", FrameScales::kRow}};

struct Comparison {
  Arm arm;
  const Arm* copy;
};

}  // namespace

Status RunCodec(const Config& config, const std::string&, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const KvPages pages, config.kv_file.empty()
                                                  ? KvOfOwnModel(config.kv_tokens)
                                                  : KvOfFile(config.kv_file, config.kv_shape));
  report->Text("source", pages.origin, "where the KV comes from");
  const KvPlane& plane = pages.planes.front();
  const uint32_t first_layer = plane.layers > 1 ? 1 : 0;
  ReportRatios(pages, first_layer, report);
  CAIRN_RETURN_IF_ERROR(ReportTokens(pages.token_ids, report));

  std::vector<Page> measured;
  for (uint32_t layer = first_layer; layer < plane.layers; ++layer) {
    for (const KvPlane& p : pages.planes) {
      const std::vector<Page> more = p.Pages(layer);
      measured.insert(measured.end(), more.begin(), more.end());
    }
  }
  Memory cold(plane.page_shape(), measured, config.source_bytes);
  Memory hot(plane.page_shape(), measured, 0);
  report->Value("page_bytes", static_cast<double>(cold.page_bytes), "of a raw page of 256 tokens");
  report->Value("source_mib", static_cast<double>(cold.raw.size()) / (1 << 20),
                "pages are repeated over so much memory");

  std::deque<Frames> frames;
  std::deque<Comparison> comparisons;
  Arm copy = CopyArm("memcpy", cold), hot_copy = CopyArm("memcpy_cached", hot);
  for (const CodecPath path : {CodecPath::kAvx512, CodecPath::kScalar}) {
    if (!CodecPathSupported(path)) continue;
    for (const Coding& coding : kCodings) {
      const std::string name = std::string(coding.name) + "_" + CodecPathName(path);
      const FrameOptions options{.flags = coding.flags, .path = path};
      frames.emplace_back(cold, options);
      CAIRN_RETURN_IF_ERROR(Verify(cold, frames.back(), path).WithContext(name));
      comparisons.push_back({EncodeArm(name + "_encode", cold, options), &copy});
      comparisons.push_back({DecodeArm(name + "_decode", cold, frames.back(), path), &copy});
    }
    const FrameOptions options{.path = path};
    const std::string name = std::string("cached_") + CodecPathName(path);
    frames.emplace_back(hot, options);
    comparisons.push_back({EncodeArm(name + "_encode", hot, options), &hot_copy});
    comparisons.push_back({DecodeArm(name + "_decode", hot, frames.back(), path), &hot_copy});
  }

  std::deque<Memory> quantised;
  for (const Scaling& scaling : kScalings) {
    Memory& memory = quantised.emplace_back(plane.page_shape(), measured, config.source_bytes);
    for (size_t i = 0; i < memory.count; ++i) {
      QuantiseFrame(memory.shape, scaling.scales, memory.Mutable(i));
    }
    for (const CodecPath path : {CodecPath::kAvx512, CodecPath::kScalar}) {
      if (!CodecPathSupported(path)) continue;
      const std::string name = std::string(scaling.name) + "_" + CodecPathName(path);
      const FrameOptions options{.scales = scaling.scales, .path = path};
      frames.emplace_back(memory, options);
      CAIRN_RETURN_IF_ERROR(Verify(memory, frames.back(), path).WithContext(name));
      comparisons.push_back({QuantiseArm(name + "_encode", memory, options), &copy});
      comparisons.push_back({DecodeArm(name + "_decode", memory, frames.back(), path), &copy});
    }
    report->Value(
        std::string(scaling.name) + "_ratio",
        static_cast<double>(memory.raw.size()) / static_cast<double>(frames.back().bytes.size()),
        "raw to frame bytes with headers: lossy, scales of " +
            std::string(scaling.scales == FrameScales::kRow ? "rows" : "channels"));
  }

  std::vector<Arm*> arms = {&copy, &hot_copy};
  for (Comparison& comparison : comparisons) arms.push_back(&comparison.arm);
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "codec", arms));
  for (const Arm* arm : arms) {
    report->Value(arm->name + "_gb_per_s", arm->gb_per_s(), "raw bytes a second, one core");
  }
  for (const Comparison& comparison : comparisons) {
    report->AddRatio(comparison.arm.name + "_to_memcpy",
                     RatioOfBytes(comparison.arm, *comparison.copy),
                     "of the speed of " + comparison.copy->name);
  }
  return Status::Ok();
}

}  // namespace cairn::bench
