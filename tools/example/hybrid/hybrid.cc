// SPDX-License-Identifier: Apache-2.0
//
// KV of a hybrid model: of each layer group no more is given than its retention rule needs. A
// prompt is appended at once, the next token layer by layer, as a forward pass makes it.
#include <cairn/kv_buffer.h>
#include <cairn/store.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint64_t kWindow = 64, kSinks = 4;
enum Group : uint32_t { kFull, kWindowed, kState, kGroups };

void Check(const cairn::Status& status) {
  if (status.ok()) return;
  std::puts(status.ToString().c_str());
  std::exit(1);
}
cairn::OwnedKvView OrExit(cairn::Result<cairn::OwnedKvView> made) {
  Check(made.status());
  return std::move(*made);
}

// An engine's tensors of one group: one of rows for each layer and plane, [row][head][element].
class Cache {
 public:
  Cache(uint32_t group, const cairn::ModelSpec& spec, uint64_t rows)
      : group_(group),
        planes_(spec.groups[group].planes.size()),
        rows_(rows),
        bytes_(rows * spec.groups[group].token_bytes()) {
    std::byte* at = bytes_.data();
    for (uint32_t layer = 0; layer < spec.groups[group].layers; ++layer) {
      for (const cairn::Plane& plane : spec.groups[group].planes) {
        tensors_.push_back(at);
        at += rows * plane.heads * plane.row_bytes;
      }
    }
  }

  std::vector<std::byte>& bytes() { return bytes_; }
  // Positions [position, position + count), which lie from `row` on.
  cairn::GroupTensors At(uint64_t position, uint64_t count, uint64_t row) const {
    return {.group = group_,
            .tensors = tensors_,
            .tokens = rows_,
            .position = position,
            .count = count,
            .first_token = row};
  }
  // The same of one layer.
  cairn::GroupTensors LayerAt(uint32_t layer, uint64_t position, uint64_t count,
                              uint64_t row) const {
    cairn::GroupTensors at = At(position, count, row);
    at.tensors = at.tensors.subspan(layer * planes_, planes_);
    at.layer_begin = layer;
    return at;
  }

 private:
  const uint32_t group_;
  const size_t planes_;
  const uint64_t rows_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte*> tensors_;
};

// The sinks lie in rows [0, 4) of the window's cache, the window behind them; one state is enough.
struct Caches {
  Caches(const cairn::ModelSpec& spec, uint64_t positions)
      : full(kFull, spec, positions),
        window(kWindowed, spec, kSinks + kWindow),
        state(kState, spec, 1) {}
  Cache full, window, state;
};

}  // namespace

int main() {
  auto store = cairn::Store::Open("hybrid.store", {.create_if_missing = true});
  Check(store.status());
  cairn::ModelSpec spec;
  spec.identity.name = "hybrid";
  spec.groups = {cairn::LayerGroup::FullAttention(2, 2, 8, cairn::Dtype::kBf16),
                 cairn::LayerGroup::SlidingWindow(2, 2, 8, cairn::Dtype::kBf16, kWindow, kSinks),
                 cairn::LayerGroup::Recurrent(2, 256)};
  const auto model = store->RegisterModel(spec);
  Check(model.status());
  auto chat = store->CreateBranch(*model);
  Check(chat.status());

  constexpr uint64_t kPrompt = 200;
  const std::vector<cairn::TokenId> prompt(kPrompt, 7);
  Caches made(spec, kPrompt + 1);
  for (Cache* cache : {&made.full, &made.window, &made.state}) {
    std::ranges::fill(cache->bytes(), std::byte{7});
  }

  const auto from = [&](std::initializer_list<cairn::GroupTensors> groups) {
    return OrExit(cairn::OwnedKvView::Make(spec, groups, cairn::KvUse::kAppend));
  };
  const auto into = [&](std::initializer_list<cairn::GroupTensors> groups) {
    return OrExit(cairn::OwnedKvView::Make(spec, groups, cairn::KvUse::kRestore));
  };

  // All rows of full attention; of the window its sinks and its last 64; and the state after all L
  // tokens, which is row L - 1.
  const auto kv =
      from({made.full.At(0, kPrompt, 0), made.window.At(0, kSinks, 0),
            made.window.At(kPrompt - kWindow, kWindow, kSinks), made.state.At(kPrompt - 1, 1, 0)});
  Check(chat->AppendSync({.tokens = prompt, .kv = kv}).status());

  // The next token: Put takes a layer of a group once it is computed, Commit the token and the
  // state. The engine's window is a ring: the new row takes the place of the oldest.
  auto draft = chat->BeginAppend(1);
  Check(draft.status());
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const auto full = into({made.full.LayerAt(layer, kPrompt, 1, kPrompt)});
    const auto window = into({made.window.LayerAt(layer, kPrompt, 1, kSinks)});
    Check(draft->Put(layer, full.view()->groups[0]));
    Check(draft->Put(layer, window.view()->groups[0]));
  }
  const cairn::TokenId token = 8;
  const auto state = from({made.state.At(kPrompt, 1, 0)});
  auto ticket = draft->Commit({.tokens = {&token, 1}, .kv = state}, {});
  Check(ticket.status());
  Check(ticket->Wait());

  // Back again, at L = 201 for all groups.
  constexpr uint64_t kLength = kPrompt + 1;
  Caches back(spec, kLength);
  const auto all =
      into({back.full.At(0, kLength, 0), back.window.At(0, kSinks, 0),
            back.window.At(kLength - kWindow, kWindow, kSinks), back.state.At(kLength - 1, 1, 0)});
  Check(chat->Restore({.end = kLength, .into = all}).status());
  const bool equal = back.full.bytes() == made.full.bytes() &&
                     back.window.bytes() == made.window.bytes() &&
                     back.state.bytes() == made.state.bytes();
  std::printf("%d tokens, KV and state %s\n", static_cast<int>(kLength), equal ? "equal" : "lost");
  return equal ? 0 : 1;
}
