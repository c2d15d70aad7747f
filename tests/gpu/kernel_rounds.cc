// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/kernel_rounds.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/codec/kv_copy.h"
#include "base/codec/rotary.h"
#include "base/core/check.h"
#include "tests/base/kv_samples.h"
#include "tests/gpu/paged_case.h"

namespace cairn::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kFramesBytesMax = 96 << 10;

struct Frame {
  FrameShape shape;
  uint64_t position = 0, begin = 0, end = 0;  // The position of its first row; the wanted range.
  uint32_t head = 0;
  Bytes stored;
};

Bytes Packed(SeededRandom& random, const FrameShape& shape) {
  Bytes raw = MakeElements(shape, kContents[random.Below(std::size(kContents))], random.Next());
  const bool half = shape.dtype == Dtype::kBf16 || shape.dtype == Dtype::kF16;
  FrameOptions options;
  const uint64_t kind = random.Below(12);
  if (kind == 0) {  // Const: of an element, of a row.
    const size_t period =
        random.Below(2) == 0 ? DtypeBytes(shape.dtype) : DtypeBytes(shape.dtype) * shape.channels;
    for (size_t i = period; i < raw.size(); ++i) raw[i] = raw[i - period];
  } else if (kind < 3 && half) {
    options.scales = random.Below(2) == 0 ? FrameScales::kChannel : FrameScales::kRow;
    raw = MakeElements(shape, random.Below(2) == 0 ? Content::kKeys : Content::kSparse,
                       random.Next());
    if (!QuantiseFrame(shape, options.scales, raw)) options.scales = FrameScales::kNone;
  } else if (kind < 9) {
    options.flags = static_cast<uint8_t>(random.Below(8));
  }
  Bytes frame(MaxFrameBytes(shape));
  frame.resize(EncodeFrame(shape, raw, frame, options));
  return frame;
}

// Pages that cover the view, or a part of it, for each head.
std::vector<Frame> DrawFrames(SeededRandom& random, const PagedCase& paged) {
  const GroupView& group = paged.group();
  const uint32_t channels = paged.plane().row_bytes / DtypeBytes(paged.plane().dtype);
  const uint64_t page_rows = 1 + random.Below(random.Below(2) == 0 ? 40 : 300);
  const uint64_t begin = group.position + random.Below(group.count);
  const uint64_t end = begin + 1 + random.Below(group.position + group.count - begin);
  std::vector<Frame> frames;
  uint64_t bytes = 0;
  uint64_t page = begin - random.Below(std::min(begin, page_rows - 1) + 1);
  for (; page < end; page += page_rows) {
    // The last page may be cut, as the last of a fragment is.
    const uint64_t rows = page + page_rows >= end && random.Below(2) == 0 ? end - page : page_rows;
    for (uint32_t head = 0; head < paged.plane().heads; ++head) {
      Frame frame{{static_cast<uint32_t>(rows), channels, paged.plane().dtype},
                  page,
                  std::max(begin, page),
                  std::min(end, page + rows),
                  head,
                  {}};
      bytes += frame.shape.raw_bytes();
      if (bytes > kFramesBytesMax && !frames.empty()) return frames;
      frame.stored = Packed(random, frame.shape);
      frames.push_back(std::move(frame));
    }
  }
  return frames;
}

PlaneView OneHead(PlaneView view, std::byte** base, uint32_t head) {
  *base = view.layer_bases[0] + static_cast<int64_t>(head) * view.head_stride;
  view.layer_bases = {base, 1};
  return view;
}

// The codec's result for the frame, in `memory`. False: it refuses the frame.
bool Expect(PagedCase& paged, const Frame& frame, Bytes& memory) {
  Bytes raw(frame.shape.raw_bytes());
  if (!DecodeFrame(frame.shape, frame.stored, raw).ok()) return false;
  Plane plane = paged.plane();
  plane.heads = 1;
  std::byte* base = nullptr;
  const PlaneView view = OneHead(paged.PlaneIn(memory.data()), &base, frame.head);
  const PositionMap map(paged.group(), frame.begin, frame.end - frame.begin);
  ScatterSlice(plane, view, 0, map, raw.data(), frame.shape.rows, frame.begin - frame.position);
  return true;
}

// The bytes that the frame may write have ones.
void MarkWanted(PagedCase& paged, const Frame& frame, Bytes& marks) {
  Plane plane = paged.plane();
  plane.heads = 1;
  std::byte* base = nullptr;
  const PlaneView view = OneHead(paged.PlaneIn(marks.data()), &base, frame.head);
  const PositionMap map(paged.group(), frame.begin, frame.end - frame.begin);
  const Bytes ones(SliceBytes(plane, map.count()), std::byte{1});
  ScatterSlice(plane, view, 0, map, ones.data(), map.count(), 0);
}

struct Outcome {
  Bytes memory;
  std::vector<gpu::Fault> faults;
};

Outcome Scatter(KernelMachine& machine, SeededRandom& random, PagedCase& paged,
                const std::vector<Frame>& frames) {
  std::byte* const memory = machine.Put(paged.memory(), paged.skew());
  const std::vector<gpu::PagedView> views = {paged.OnMachine(machine)};
  std::vector<gpu::FrameToScatter> described;
  for (const Frame& frame : frames) {
    // Tables lay frames on 64 bytes; kernels take any place.
    std::byte* const at = machine.Put(frame.stored, random.Below(8) == 0 ? random.Below(64) : 0);
    const Result<gpu::FrameToScatter> one = gpu::DescribeFrame(
        frame.shape, frame.stored, at, paged.BaseIn(memory, frame.head), views[0], 0,
        gpu::DescribeRows(paged.group(), frame.position, frame.begin, frame.end));
    CAIRN_CHECK(one.ok());
    described.push_back(*one);
  }
  gpu::DecodeScatter k;
  k.frames = machine.PutAll(described);
  k.views = machine.PutAll(views);
  k.count = static_cast<uint32_t>(described.size());
  auto* const faults = machine.PutAll(std::vector<gpu::Fault>(k.count, gpu::Fault{77}));
  k.faults = faults;
  machine.Launch(k);
  Outcome outcome{machine.Get(memory, paged.memory().size()), machine.GetAll(faults, k.count)};
  machine.Clear();
  return outcome;
}

struct Gathered {
  Bytes bytes, source;
  std::vector<gpu::Fault> faults;
};

Gathered Gather(KernelMachine& machine, SeededRandom& random, PagedCase& paged, uint64_t begin,
                uint64_t end) {
  const uint64_t head_bytes = (end - begin) * paged.plane().row_bytes;
  const Bytes rubbish(paged.plane().heads * head_bytes, std::byte{0xee});
  std::byte* const memory = machine.Put(paged.memory(), paged.skew());
  std::byte* const into = machine.Put(rubbish, random.Below(4) == 0 ? random.Below(64) : 0);
  const std::vector<gpu::PagedView> views = {paged.OnMachine(machine)};
  std::vector<gpu::StripToGather> strips;
  for (uint32_t head = 0; head < paged.plane().heads; ++head) {
    strips.push_back(gpu::DescribeStrip(paged.plane(), paged.BaseIn(memory, head),
                                        into + head * head_bytes, views[0], 0,
                                        gpu::DescribeRows(paged.group(), begin, begin, end)));
  }
  gpu::GatherSave k;
  k.strips = machine.PutAll(strips);
  k.views = machine.PutAll(views);
  k.count = static_cast<uint32_t>(strips.size());
  k.faults = machine.PutAll(std::vector<gpu::Fault>(k.count, gpu::Fault{77}));
  machine.Launch(k);
  Gathered gathered{machine.Get(into, rubbish.size()), machine.Get(memory, paged.memory().size()),
                    machine.GetAll(k.faults, k.count)};
  machine.Clear();
  return gathered;
}

std::string Differ(const Bytes& is, const Bytes& expected) {
  const auto at = std::mismatch(is.begin(), is.end(), expected.begin(), expected.end());
  if (at.first == is.end()) return "";
  return "byte " + std::to_string(at.first - is.begin()) + " of " + std::to_string(is.size()) +
         " differs";
}

std::string Describe(const Frame& frame) {
  const Result<FrameHeader> header = ReadFrameHeader(frame.stored);
  return "frame of " + std::to_string(frame.shape.rows) + " x " +
         std::to_string(frame.shape.channels) + ", codec " +
         std::to_string(static_cast<int>(header->codec)) + ", flags " +
         std::to_string(header->flags) + ", head " + std::to_string(frame.head) + ", wanted " +
         std::to_string(frame.begin - frame.position) + " to " +
         std::to_string(frame.end - frame.position);
}

}  // namespace

std::string DecodeScatterRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  PagedCase paged(random);
  const std::vector<Frame> frames = DrawFrames(random, paged);
  Bytes expected = paged.memory();
  for (const Frame& frame : frames) CAIRN_CHECK(Expect(paged, frame, expected));
  const Outcome outcome = Scatter(machine, random, paged, frames);
  for (size_t i = 0; i < frames.size(); ++i) {
    if (outcome.faults[i] != gpu::Fault::kNone) {
      return Describe(frames[i]) + ": fault " +
             std::to_string(static_cast<uint32_t>(outcome.faults[i])) + "; " + paged.Describe();
    }
  }
  const std::string differ = Differ(outcome.memory, expected);
  if (differ.empty()) return "";
  std::string all = differ + "; " + paged.Describe();
  for (const Frame& frame : frames) all += "; " + Describe(frame);
  return all;
}

std::string DamagedFramesRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  PagedCase paged(random);
  std::vector<Frame> frames = DrawFrames(random, paged);
  for (Frame& frame : frames) {
    Bytes& stored = frame.stored;
    if (random.Below(8) == 0) continue;
    const size_t payload = stored.size() - kFrameHeaderBytes;
    if (random.Below(4) == 0) {  // Cut or lengthened, and the header says so.
      const size_t to =
          random.Below(2) == 0 ? random.Below(payload + 1) : payload + 1 + random.Below(9);
      stored.resize(kFrameHeaderBytes + to, std::byte{9});
      const auto length = static_cast<uint32_t>(to);
      std::memcpy(stored.data() + 12, &length, sizeof(length));
    } else {  // Flips, most of them where the decoder is steered.
      for (uint64_t flips = 1 + random.Below(3); flips > 0; --flips) {
        const size_t at = random.Below(2) == 0 ? random.Below(std::min<size_t>(payload, 120))
                                               : random.Below(payload);
        stored[kFrameHeaderBytes + at] ^= static_cast<std::byte>(1u << random.Below(8));
      }
    }
  }
  Bytes expected = paged.memory(), marks(paged.memory().size()), unsure(paged.memory().size());
  std::vector<bool> fine;
  for (const Frame& frame : frames) {
    fine.push_back(Expect(paged, frame, expected));
    if (!fine.back()) MarkWanted(paged, frame, unsure);
  }
  Outcome outcome = Scatter(machine, random, paged, frames);
  for (size_t i = 0; i < frames.size(); ++i) {
    if ((outcome.faults[i] == gpu::Fault::kNone) != fine[i]) {
      return Describe(frames[i]) + ": fault " +
             std::to_string(static_cast<uint32_t>(outcome.faults[i])) +
             (fine[i] ? ", the codec is content; " : ", the codec complains; ") + paged.Describe();
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (unsure[i] != std::byte{0}) outcome.memory[i] = expected[i];
  }
  const std::string differ = Differ(outcome.memory, expected);
  return differ.empty() ? "" : differ + "; " + paged.Describe();
}

std::string LostTableRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  PagedCase paged(random);
  const std::vector<Frame> frames = DrawFrames(random, paged);
  const PagedCase::Positions lost = paged.LoseEntry(random);
  const auto loses = [&lost](uint64_t begin, uint64_t end) {
    return begin < lost.end && lost.begin < end;
  };
  Bytes expected = paged.memory(), unsure(paged.memory().size());
  for (const Frame& frame : frames) {
    CAIRN_CHECK(Expect(paged, frame, expected));
    if (loses(frame.begin, frame.end)) MarkWanted(paged, frame, unsure);
  }
  Outcome outcome = Scatter(machine, random, paged, frames);
  for (size_t i = 0; i < frames.size(); ++i) {
    const gpu::Fault fault =
        loses(frames[i].begin, frames[i].end) ? gpu::Fault::kTable : gpu::Fault::kNone;
    if (outcome.faults[i] != fault) {
      return Describe(frames[i]) + ": fault " +
             std::to_string(static_cast<uint32_t>(outcome.faults[i])) + "; " + paged.Describe();
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (unsure[i] != std::byte{0}) outcome.memory[i] = expected[i];
  }
  const std::string differ = Differ(outcome.memory, expected);
  if (!differ.empty()) return differ + "; " + paged.Describe();
  const GroupView& group = paged.group();
  const Gathered gathered =
      Gather(machine, random, paged, group.position, group.position + group.count);
  const gpu::Fault fault = lost.begin == lost.end ? gpu::Fault::kNone : gpu::Fault::kTable;
  if (std::count(gathered.faults.begin(), gathered.faults.end(), fault) !=
      static_cast<ptrdiff_t>(gathered.faults.size())) {
    return "gather_save does not tell; " + paged.Describe();
  }
  return gathered.source == paged.memory() ? "" : "the source has changed; " + paged.Describe();
}

namespace {

bool CanBeTurned(const Plane& plane) {
  const bool turns =
      plane.dtype == Dtype::kF32 || plane.dtype == Dtype::kF16 || plane.dtype == Dtype::kBf16;
  return turns && plane.row_bytes >= 2 * DtypeBytes(plane.dtype);
}

Rotation DrawRotation(SeededRandom& random, Plane plane) {
  const uint32_t elements = plane.row_bytes / DtypeBytes(plane.dtype);
  const auto pairs = static_cast<uint32_t>(1 + random.Below(elements / 2));
  plane.rotary = {
      .state = RotaryState::kApplied,
      .pairing = random.Below(2) == 0 ? RotaryPairing::kHalves : RotaryPairing::kAdjacent,
      .first = static_cast<uint32_t>(random.Below(elements - 2 * pairs + 1)),
      .width = 2 * pairs};
  LayerGroup group;
  group.planes = {plane};
  for (uint32_t i = 0; i < pairs; ++i) {
    group.inv_freq.push_back(static_cast<float>(random.Below(1000)) / 999.0F);
  }
  return Rotation::Of(group, 0).value();
}

// Turns the rows of a head of the positions of `map` in `memory`, by turns one row behind the
// other.
void ExpectTurned(PagedCase& paged, const Rotation& rotation, uint32_t head, const PositionMap& map,
                  std::span<const RotaryTurn> turns, Bytes& memory) {
  Plane plane = paged.plane();
  plane.heads = 1;
  std::byte* base = nullptr;
  const PlaneView view = OneHead(paged.PlaneIn(memory.data()), &base, head);
  Bytes rows(SliceBytes(plane, map.count()));
  GatherSlice(plane, view, 0, map, rows.data());
  for (size_t i = 0; i < map.count(); ++i) {
    const auto row = std::span(rows).subspan(i * plane.row_bytes, plane.row_bytes);
    rotation.Turn(turns.subspan(i * rotation.pairs(), rotation.pairs()), row, row);
  }
  ScatterSlice(plane, view, 0, map, rows.data(), map.count(), 0);
}

}  // namespace

std::string RotateKeysRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  std::optional<PagedCase> drawn;
  do {
    drawn.emplace(random);
  } while (!CanBeTurned(drawn->plane()));
  PagedCase& paged = *drawn;
  const GroupView& group = paged.group();
  const Rotation rotation = DrawRotation(random, paged.plane());
  const uint64_t begin = group.position + random.Below(group.count);
  const uint64_t end =
      begin + 1 + random.Below(std::min<uint64_t>(300, group.position + group.count - begin));
  // Rows before the first may belong to the page, and have no place.
  const uint64_t page = begin - random.Below(std::min<uint64_t>(begin, 5) + 1);
  const uint64_t shift = random.Below(3) == 0 ? 0 : random.Below(uint64_t{1} << random.Below(20));
  std::vector<RotaryTurn> turns((end - begin) * rotation.pairs());
  for (uint64_t at = begin; at < end; ++at) {
    const uint64_t to = at + shift;
    rotation.Between({&at, 1}, {&to, 1},
                     std::span(turns).subspan((at - begin) * rotation.pairs(), rotation.pairs()));
  }
  Bytes expected = paged.memory();
  std::byte* const memory = machine.Put(paged.memory(), paged.skew());
  const std::vector<gpu::PagedView> views = {paged.OnMachine(machine)};
  const auto* const turns_at = reinterpret_cast<const float*>(machine.PutAll(turns));
  const uint32_t channels = paged.plane().row_bytes / DtypeBytes(paged.plane().dtype);
  std::vector<gpu::RowsToTurn> rows;
  for (uint32_t head = 0; head < paged.plane().heads; ++head) {
    if (random.Below(4) == 0) continue;
    ExpectTurned(paged, rotation, head, PositionMap(group, begin, end - begin), turns, expected);
    const gpu::FrameToScatter frame = gpu::DescribeRaw(
        static_cast<uint32_t>(end - page), channels, nullptr, paged.BaseIn(memory, head), views[0],
        0, gpu::DescribeRows(group, page, begin, end));
    rows.push_back({.base = frame.base,
                    .turns = turns_at,
                    .wanted = frame.wanted,
                    .pairs = rotation.pairs(),
                    .window = rotation.first(),
                    .adjacent = rotation.adjacent(),
                    .fp16 = paged.plane().dtype == Dtype::kF16,
                    .unit = frame.unit});
  }
  gpu::RotateKeys k;
  k.rows = machine.PutAll(rows);
  k.views = machine.PutAll(views);
  k.count = static_cast<uint32_t>(rows.size());
  machine.Launch(k);
  const std::string differs = Differ(machine.Get(memory, paged.memory().size()), expected);
  machine.Clear();
  return differs.empty() ? "" : differs + "; " + paged.Describe();
}

std::string GatherSaveRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  PagedCase paged(random);
  const GroupView& group = paged.group();
  const uint64_t begin = group.position + random.Below(group.count);
  const uint64_t end = begin + 1 + random.Below(group.position + group.count - begin);
  Bytes expected(SliceBytes(paged.plane(), end - begin));
  const PositionMap map(group, begin, end - begin);
  GatherSlice(paged.plane(), paged.PlaneIn(paged.memory().data()), 0, map, expected.data());
  const Gathered gathered = Gather(machine, random, paged, begin, end);
  for (const gpu::Fault fault : gathered.faults) {
    if (fault != gpu::Fault::kNone) return "a fault; " + paged.Describe();
  }
  if (gathered.source != paged.memory()) return "the source has changed; " + paged.Describe();
  const std::string differ = Differ(gathered.bytes, expected);
  return differ.empty() ? "" : differ + "; " + paged.Describe();
}

std::string GatherStepRound(KernelMachine& machine, uint64_t seed) {
  constexpr uint32_t kSlots = 3, kSteps = 4;
  SeededRandom random(seed);
  PagedCase paged(random);
  const GroupView& group = paged.group();
  const uint64_t begin = group.position, count = group.count;
  Bytes slice(SliceBytes(paged.plane(), count));
  GatherSlice(paged.plane(), paged.PlaneIn(paged.memory().data()), 0,
              PositionMap(group, begin, count), slice.data());
  // Some positions may have no place on the machine.
  const PagedCase::Positions lost =
      random.Below(3) == 0 ? paged.LoseEntry(random) : PagedCase::Positions{};
  const auto is_there = [&](uint64_t row) {
    return begin + row < lost.begin || begin + row >= lost.end;
  };
  const uint64_t head_bytes = count * paged.plane().row_bytes;
  const uint64_t stamp_at = (slice.size() + count + 3) / 4 * 4;
  const uint64_t slot_bytes = (stamp_at + 4 + 15) / 16 * 16;

  Bytes expected(kSlots * slot_bytes, std::byte{0xee});
  std::byte* const memory = machine.Put(paged.memory(), paged.skew());
  std::byte* const slots = machine.Put(expected);
  const std::vector<gpu::PagedView> views = {paged.OnMachine(machine)};
  const gpu::WantedRows wanted = gpu::DescribeRows(group, begin, begin, begin + count);
  std::vector<gpu::StripToGather> strips;
  for (uint32_t head = 0; head < paged.plane().heads; ++head) {
    strips.push_back(gpu::DescribeStrip(paged.plane(), paged.BaseIn(memory, head),
                                        slots + head * head_bytes, views[0], 0, wanted));
  }
  const std::vector<gpu::RowsThere> rows{
      {.there = reinterpret_cast<uint8_t*>(slots + slice.size()), .wanted = wanted, .view = 0}};
  gpu::GatherStep gather;
  gather.strips = machine.PutAll(strips);
  gather.rows = machine.PutAll(rows);
  gather.views = machine.PutAll(views);
  gather.slot_bytes = slot_bytes;
  gather.strips_count = static_cast<uint32_t>(strips.size());
  gather.rows_count = 1;
  gpu::EndStep end;
  end.stamp = reinterpret_cast<uint32_t*>(slots + stamp_at);
  end.told = machine.PutAll(std::vector<uint32_t>{77});
  end.slot_bytes = slot_bytes;
  uint32_t told = 77;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const auto number = static_cast<uint32_t>(1 + random.Below(UINT32_MAX));
    const uint64_t slot = random.Below(kSlots);
    const bool saved = random.Below(3) != 0;
    gpu::StepPlan* const plan =
        machine.PutAll(std::vector<gpu::StepPlan>{saved ? number | slot << 32 : 0});
    gather.plan = end.plan = plan;
    machine.Launch(gather);
    machine.Launch(end);
    if (machine.GetAll(plan, 1)[0] != 0) return "the plan is still there";
    if (!saved) continue;
    told = number;
    std::byte* const at = expected.data() + slot * slot_bytes;
    for (uint64_t row = 0; row < count; ++row) {
      at[slice.size() + row] = std::byte{is_there(row)};
      for (uint64_t head = 0; is_there(row) && head < paged.plane().heads; ++head) {
        const uint64_t row_at = head * head_bytes + row * paged.plane().row_bytes;
        std::memcpy(at + row_at, slice.data() + row_at, paged.plane().row_bytes);
      }
    }
    std::memcpy(at + stamp_at, &number, sizeof number);
  }
  const Bytes is = machine.Get(slots, expected.size());
  const uint32_t is_told = machine.GetAll(end.told, 1)[0];
  machine.Clear();
  if (is_told != told) return "told " + std::to_string(is_told);
  const std::string differ = Differ(is, expected);
  return differ.empty() ? "" : differ + "; " + paged.Describe();
}

std::string CheckTableRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  const bool wide = random.Below(2) == 0;
  const uint64_t count = 1 + random.Below(400);
  const auto end = static_cast<uint32_t>(1 + random.Below(3 * count));
  std::vector<int64_t> entries(count);
  for (int64_t& entry : entries) entry = static_cast<int64_t>(random.Below(end));
  if (random.Below(2) == 0) {  // All different, where there are enough.
    for (uint64_t i = 0; i < count; ++i) entries[i] = static_cast<int64_t>(i * 7919 % (end | 1u));
  }
  for (uint64_t bad = random.Below(3); bad > 0; --bad) {
    const int64_t outside[] = {
        -1, end, INT32_MAX, INT32_MIN, wide ? INT64_MIN : -2, wide ? int64_t{1} << 32 : end};
    entries[random.Below(count)] = outside[random.Below(std::size(outside))];
  }
  const uint64_t first = random.Below(count), last = first + random.Below(count - first);
  gpu::TableVerdict expected;
  std::set<uint64_t> seen;
  for (uint64_t i = first; i <= last; ++i) {
    const auto entry = static_cast<uint64_t>(entries[i]);
    if (entry >= end) {
      expected.outside = std::min(expected.outside, i);
    } else if (!seen.insert(entry).second) {
      expected.twice = std::min(expected.twice, entry);
    }
  }
  gpu::CheckTable k;
  k.entries = wide ? static_cast<const void*>(machine.PutAll(entries))
                   : machine.PutAll(std::vector<int32_t>(entries.begin(), entries.end()));
  k.seen = machine.PutAll(std::vector<uint32_t>((end + 31) / 32));
  k.verdict = machine.PutAll(std::vector<gpu::TableVerdict>(1));
  k.first = static_cast<uint32_t>(first);
  k.end = static_cast<uint32_t>(last + 1);
  k.entries_end = end;
  k.is_64_bit = wide;
  machine.Launch(k);
  const gpu::TableVerdict is = machine.GetAll(k.verdict, 1)[0];
  machine.Clear();
  if (is.outside == expected.outside && is.twice == expected.twice) return "";
  return "outside " + std::to_string(is.outside) + " for " + std::to_string(expected.outside) +
         ", twice " + std::to_string(is.twice) + " for " + std::to_string(expected.twice);
}

}  // namespace cairn::testing
