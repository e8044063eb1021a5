// SPDX-License-Identifier: Apache-2.0
#include "core/plan/code_view.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "core/process/memory.h"

namespace whomap {
namespace {

template <class Range, class Get>
auto containing(const Range& ranges, std::uint64_t address, Get range_of) {
  auto after =
      std::upper_bound(ranges.begin(), ranges.end(), address,
                       [&](std::uint64_t wanted, const auto& each) { return wanted < range_of(each).end; });
  return after != ranges.end() && range_of(*after).contains(address) ? after : ranges.end();
}

constexpr auto itself = [](const AddressRange& range) { return range; };

}  // namespace

CodeView CodeView::of_module(pid_t pid, const Module& module, const PageMap* pages) {
  CodeView view;
  view.pid_ = pid;
  view.image_ = module.image;
  view.fd_ = module.image->fd();
  view.bias_ = module.bias;
  view.pages_ = pages;
  for (const Vma& vma : module.executable) {
    const bool has_file = view.fd_ >= 0;
    std::vector<AddressRange> own;
    if (!has_file)
      own = {vma.range()};
    else if (pages != nullptr && !vma.shared)
      own = pages->pages(vma.range(), true);
    view.add_mapping(vma.range(), has_file, vma.offset, own);
  }
  view.join_areas();
  return view;
}

CodeView CodeView::of_memory(pid_t pid, const std::vector<AddressRange>& ranges, const PageMap& pages) {
  CodeView view;
  view.pid_ = pid;
  for (const AddressRange& range : ranges)
    for (const AddressRange& resident : pages.pages(range, false))
      view.add_mapping(resident, false, 0, {resident});
  view.join_areas();
  return view;
}

CodeView CodeView::of_file(std::shared_ptr<const Image> image) {
  CodeView view;
  view.fd_ = image->fd();
  view.image_ = image;
  struct stat facts {};
  const std::uint64_t file_size =
      ::fstat(view.fd_, &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
  for (const Segment& segment : image->segments()) {
    // A damaged header may promise more than the file has.
    if (!segment.executable || segment.offset >= file_size) continue;
    const std::uint64_t size = std::min(segment.file_size, file_size - segment.offset);
    if (size != 0 && segment.vaddr + size > segment.vaddr)
      view.add_mapping({segment.vaddr, segment.vaddr + size}, true, segment.offset, {});
  }
  view.join_areas();
  return view;
}

CodeView CodeView::of_bytes(std::uint64_t address, std::vector<std::uint8_t> bytes) {
  CodeView view;
  view.add_mapping({address, address + bytes.size()}, true, 0, {});
  view.bytes_ = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  view.join_areas();
  return view;
}

void CodeView::add_mapping(AddressRange range, bool has_file, std::uint64_t file_offset,
                           const std::vector<AddressRange>& from_memory) {
  std::uint64_t at = range.start;
  const auto add = [&](std::uint64_t end, bool memory) {
    if (end > at) pieces_.push_back({{at, end}, memory, has_file, file_offset + (at - range.start)});
    at = std::max(at, end);
  };
  for (const AddressRange& own : from_memory) {
    add(own.start, false);
    add(own.end, true);
  }
  add(range.end, false);
}

void CodeView::join_areas() {
  std::sort(pieces_.begin(), pieces_.end(),
            [](const Piece& a, const Piece& b) { return a.range.start < b.range.start; });
  for (const Piece& piece : pieces_) {
    if (!areas_.empty() && areas_.back().end == piece.range.start)
      areas_.back().end = piece.range.end;
    else
      areas_.push_back(piece.range);
  }
}

std::optional<AddressRange> CodeView::area(std::uint64_t address) const {
  const auto found = containing(areas_, address, itself);
  return found == areas_.end() ? std::nullopt : std::optional(*found);
}

std::size_t CodeView::read(std::uint64_t address, std::span<std::uint8_t> into) const {
  return copy(address, into, false);
}

std::size_t CodeView::read_original(std::uint64_t address, std::span<std::uint8_t> into) const {
  return copy(address, into, true);
}

std::size_t CodeView::copy(std::uint64_t address, std::span<std::uint8_t> into, bool original) const {
  auto piece = containing(pieces_, address, [](const Piece& each) { return each.range; });
  std::size_t done = 0;
  while (done < into.size() && piece != pieces_.end() && piece->range.contains(address + done)) {
    const std::uint64_t at = address + done;
    const auto part =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size() - done, piece->range.end - at));
    const std::size_t got = copy_piece(*piece, at, into.subspan(done, part), original);
    done += got;
    if (got < part) {
      unreadable_ += part - got;
      break;
    }
    ++piece;
  }
  return done;
}

std::size_t CodeView::copy_piece(const Piece& piece, std::uint64_t address, std::span<std::uint8_t> into,
                                 bool original) const {
  if (!piece.has_file || (piece.from_memory && !original))
    return read_memory(pid_, address, std::as_writable_bytes(into));
  const std::uint64_t offset = piece.file_offset + (address - piece.range.start);
  if (bytes_ != nullptr) {
    std::memcpy(into.data(), bytes_->data() + offset, into.size());
    return into.size();
  }
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        ::pread(fd_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::uint64_t CodeView::end_of_own_pages(std::uint64_t address) const {
  if (pages_ == nullptr) return address;
  // Each question waits for the lock of the target's memory, for seconds where 300 threads map memory: so the
  // pages around are asked for too.
  constexpr std::uint64_t window = std::uint64_t{2} << 20;
  if (!asked_.contains(address)) {
    const std::uint64_t start = address - address % window;
    asked_ = {start, start + window};
    own_pages_ = pages_->pages(asked_, true);
  }
  for (const AddressRange& run : own_pages_)
    if (run.contains(address)) return run.end;
  return address;
}

std::size_t CodeView::read_data(std::uint64_t address, std::span<std::uint8_t> into) const {
  const std::uint64_t last = address + into.size();
  if (last < address) return 0;
  // Relocated data (addresses in .data.rel.ro, the GOT) is right only in memory, where it has been written.
  if (const std::uint64_t end = end_of_own_pages(address); end > address) {
    const auto part = static_cast<std::size_t>(std::min(end, last) - address);
    return read_memory(pid_, address, std::as_writable_bytes(into.first(part)));
  }
  if (bytes_ != nullptr) return read_original(address, into);
  if (image_ == nullptr || fd_ < 0) return 0;
  for (const Segment& segment : image_->segments()) {
    const std::uint64_t vaddr = address - bias_;
    if (vaddr < segment.vaddr || vaddr - segment.vaddr >= segment.file_size) continue;
    const std::uint64_t skipped = vaddr - segment.vaddr;
    const auto part =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), segment.file_size - skipped));
    const ssize_t got = ::pread(fd_, into.data(), part, static_cast<off_t>(segment.offset + skipped));
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  return 0;
}

bool CodeView::has_changed_pages(AddressRange range) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return piece.from_memory && piece.has_file && piece.range.start < range.end &&
           range.start < piece.range.end;
  });
}

}  // namespace whomap
