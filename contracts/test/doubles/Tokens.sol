// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @notice Keeps one percent of every transfer, as the contracts say they don't support.
contract FeeOnTransferToken is ERC20 {
    constructor() ERC20("fee", "FEE") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function _update(address from, address to, uint256 value) internal override {
        if (from != address(0) && to != address(0)) {
            super._update(from, address(0xfee), value / 100);
            value -= value / 100;
        }
        super._update(from, to, value);
    }
}

/// @notice Calls back into whoever the test names, in the middle of a transfer.
contract HookToken is ERC20 {
    address public target;
    bytes public data;
    bool public succeeded;
    bytes public answer;

    constructor() ERC20("hook", "HOOK") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function arm(address target_, bytes calldata data_) external {
        (target, data) = (target_, data_);
    }

    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (target != address(0)) {
            address hooked = target;
            target = address(0);
            // solhint-disable-next-line avoid-low-level-calls
            (succeeded, answer) = hooked.call(data);
        }
    }
}

/// @notice Cannot be burned: plain ERC-20.
contract PlainToken is ERC20 {
    constructor() ERC20("plain", "PLAIN") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}

/// @notice Answers false instead of moving anything, when told to.
contract RefusingToken is ERC20 {
    bool public refuses;

    constructor() ERC20("refusing", "REFUSE") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function refuse(bool refuses_) external {
        refuses = refuses_;
    }

    function transfer(address to, uint256 amount) public override returns (bool) {
        return !refuses && super.transfer(to, amount);
    }

    function transferFrom(address from, address to, uint256 amount) public override returns (bool) {
        return !refuses && super.transferFrom(from, to, amount);
    }
}
